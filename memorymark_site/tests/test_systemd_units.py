"""The systemd unit written by the guide's commands has no secrets."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from memorymark_site.tests.programs import make_programs

ROOT = Path(settings.BASE_DIR)
SECRET = "of-the-file-alone"  # noqa: S105  # looked for in what is written

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")


@pytest.fixture
def unit(tmp_path: Path) -> str:
    """The worker's unit, written by the guide's commands for a copy of the repository."""
    programs = make_programs(tmp_path, "echo ours: $*")
    shutil.copy(ROOT / "Procfile", tmp_path)
    (tmp_path / ".env").write_text(f"PATH={programs}:/usr/bin:/bin\nSECRET_KEY={SECRET}\n")
    units = tmp_path / "units"
    units.mkdir()
    guide = (ROOT / "docs" / "nodes.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\.venv/bin/honcho export|sed) .*$", guide, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        here = line.replace("/etc/systemd/system", str(units))
        subprocess.run(["/bin/sh", "-c", here], cwd=tmp_path, check=True, capture_output=True)
    return (units / "memorymark-worker-1.service").read_text()


def test_no_unit_has_the_variables_of_the_env_file(unit: str, tmp_path: Path) -> None:
    assert SECRET not in unit
    assert f"EnvironmentFile={tmp_path}/.env" in unit
