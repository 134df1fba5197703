from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django.live_server_helper import LiveServer

from analyses import services
from analyses.importing.tests.test_script_pushed_live import SCRIPT
from analyses.models import OF_A_PROGRAM, Analysis, Push, Status, TrainingRun
from analyses.tests.factories import make_analysis
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.torch
def test_the_examples_in_the_client_guide_work(
    live_server: LiveServer, member: User, tmp_path: Path, memorymark_folder: Path
) -> None:
    """As one script, in the guide's order; the lab already has the first result."""
    fields = {"model": "bert", "gpu": "a10", "current_batch_size": 16}
    asked = services.submit(member, fields)
    make_analysis(member, Status.SUCCEEDED, request_hash=asked.request_hash, request=asked.request)
    (tmp_path / "train.py").write_text(SCRIPT.format(width=256))
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs/client.md").read_text(), re.DOTALL)
    _, token = tokens.create(member, "examples", Scope.WRITE, 7)
    environment = os.environ | {
        "MEMORYMARK_URL": live_server.url,
        "MEMORYMARK_TOKEN": token,
        "MEMORYMARK_OUTBOX": str(tmp_path / "outbox"),
        "PYTHONPATH": str(memorymark_folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(examples)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    assert "unknown gpu 'a11'" in done.stdout
    assert Analysis.objects.filter(adopted_at__isnull=False).count() == 1
    assert Analysis.objects.filter(tags__name="thesis").count() == 1
    pushed = Push.objects.get(analysis__program_hash="").analysis
    assert Analysis.objects.filter(OF_A_PROGRAM, model="train.py").count() == 1
    assert f"/api/v1/analyses/{pushed.pk}/" in done.stdout
    assert TrainingRun.objects.get().record["steps"] == 10
    assert not list((tmp_path / "outbox").rglob("*.json"))
