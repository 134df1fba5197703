"""Commands where the database or a folder is away say one line, from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

NO_DATABASE = {"DATABASE_URL": "postgres://lab:secret@127.0.0.1:1/lab"}


def _started(command: str, **variables: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    return subprocess.Popen(
        [sys.executable, "manage.py", *command.split()],
        cwd=settings.BASE_DIR,
        env=kept | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _line_of(process: subprocess.Popen[str]) -> str:
    """Its line on standard error, if that is one line and it fails."""
    _, said = process.communicate()
    (line,) = said.strip().splitlines()
    assert process.returncode == 1
    return line


@pytest.mark.longer
@pytest.mark.parametrize(
    "command",
    [
        "migrate",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("backup {folder}/lab.zip", "token ada", "drain")
        ),
    ],
)
def test_without_a_database_commands_end_in_one_line(tmp_path: Path, command: str) -> None:
    variables = NO_DATABASE | {"MEMORYMARK_DATA_DIR": str(tmp_path)}
    line = _line_of(_started(command.format(folder=tmp_path), **variables))
    assert line.startswith("The database does not respond")
    assert "Connection refused" in line
    assert "secret" not in line


@pytest.mark.longer
def test_a_data_folder_that_cannot_be_written_is_one_line() -> None:
    """``/proc/self`` is one even for root."""
    unusable = {"MEMORYMARK_DATA_DIR": "/proc/self"}
    without_key = _started("migrate", **unusable)
    with_key = _started("migrate", SECRET_KEY="k" * 50, **unusable)
    below = _started("migrate", MEMORYMARK_DATA_DIR="/proc/self/lab")
    assert _line_of(without_key).startswith("the secret key cannot be kept")
    assert "unable to open database file" in _line_of(with_key)
    assert _line_of(below).startswith("the data folder cannot be created")


@pytest.mark.slow
def test_the_traceback_can_be_had(tmp_path: Path) -> None:
    process = _started("migrate --traceback", MEMORYMARK_DATA_DIR=str(tmp_path), **NO_DATABASE)
    assert "Traceback" in process.communicate()[1]
