"""``memorymark site``: its configuration file and its commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings


def _site(*words: str, folder: Path, config: str | None = None) -> subprocess.CompletedProcess[str]:
    flags: list[str] = []
    if config is not None:
        (folder / "site.env").write_text(config)
        flags = ["--config", str(folder / "site.env")]
    return subprocess.run(
        [sys.executable, "-m", "memorymark_site", *flags, *words],
        cwd=settings.BASE_DIR,
        env={"MEMORYMARK_DATA_DIR": str(folder / "data")},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_command_has_the_variables_of_the_file(tmp_path: Path) -> None:
    config = f"# ours\nMEMORYMARK_DATA_DIR='{tmp_path}/named'\nSECRET_KEY={'k' * 50}\n"
    done = _site("check", folder=tmp_path, config=config)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "named").is_dir()
    assert not (tmp_path / "data").exists()


@pytest.mark.longer
def test_a_wrong_variable_of_the_file_is_reported(tmp_path: Path) -> None:
    done = _site("check", folder=tmp_path, config="PORT=none\n")
    assert done.returncode != 0
    assert "PORT" in done.stderr.splitlines()[-1]


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    done = _site("--config", str(tmp_path / "no.env"), "check", folder=tmp_path)
    assert done.returncode == 2
    assert "the configuration file cannot be read" in done.stderr.splitlines()[-1]


def test_a_quote_that_does_not_end_is_reported(tmp_path: Path) -> None:
    done = _site("check", folder=tmp_path, config="EMAIL_URL='smtp://lab\n")
    assert done.returncode == 2
    assert "cannot be read: No closing quotation" in done.stderr.splitlines()[-1]


@pytest.mark.longer
def test_what_django_does_not_know_is_reported(tmp_path: Path) -> None:
    done = _site("bakcup", folder=tmp_path)
    assert done.returncode == 1
    assert "Unknown command: 'bakcup'. Did you mean backup?" in done.stderr
    assert "memorymark site help" in done.stderr


@pytest.mark.slow
def test_a_database_that_is_away_is_one_line(tmp_path: Path) -> None:
    config = "DATABASE_URL=postgres://nobody:secret@127.0.0.1:9/none\n"
    done = _site("migrate", folder=tmp_path, config=config)
    assert done.returncode == 1
    assert done.stderr.startswith("The database does not respond or cannot be used: ")
    assert done.stderr.count("\n") == 1
