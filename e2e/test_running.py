"""Processes of a test run end with it, even where a signal ends it before its fixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from e2e.doing import TIMEOUT_MS
from e2e.running import ROOT

pytestmark = pytest.mark.e2e

_RUN = """
import os, sys
from pathlib import Path
from time import sleep
from e2e.running import tied
site = tied(["/bin/sh", "-c", "sleep 600 & wait"], os.environ, Path(sys.argv[1]))
print(site.pid, flush=True)
sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_site_ends_with_the_run_that_started_it(tmp_path: Path, number: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(tmp_path / "output.txt")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with run:
        assert run.stdout
        site = psutil.Process(int(run.stdout.readline()))
        assert site.is_running()
        run.send_signal(number)

    _, left = psutil.wait_procs([site], TIMEOUT_MS / 1000)
    assert left == []
