from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)


def _make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Not as a sub-make of the make that may be running these tests, nor on its database.
    mine = ("MAKE", "MFLAGS", "DATABASE_URL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    return subprocess.run(
        ["make", *arguments],  # make comes from the system's PATH
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_make_alone_lists_the_targets() -> None:
    said = _make()

    assert said.returncode == 0
    assert {"run", "demo", "test", "lint", "audit", "worker", "clean"} <= set(
        re.findall(r"^make (\w+)", said.stdout, re.M)
    )


def test_a_used_port_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        said = _make("run", f"PORT={port}", f"VENV={tmp_path / 'venv'}")

    assert said.returncode != 0
    assert f"port {port} is taken" in said.stderr
    assert not said.stdout
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("python", "message"),
    [("", "Python 3.11 or newer is needed"), ("false", "does not run or is older than 3.11")],
)
def test_a_missing_python_is_reported(tmp_path: Path, python: str, message: str) -> None:
    said = _make("install", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")

    assert said.returncode != 0
    assert message in said.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("target", "config"),
    [
        ("run", " --config .env"),
        ("worker", " --config .env cluster"),
        ("demo", " --config /dev/null"),
    ],
)
def test_make_run_reads_the_env_file_and_make_demo_does_not(
    tmp_path: Path, target: str, config: str
) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text('#!/bin/sh\necho "ours: $*"\n')
    (programs / "python").chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for requirements in ("requirements.txt", "requirements.lock"):
        (tmp_path / requirements).touch()
    (programs.parent / "installed").touch()
    (tmp_path / ".env").touch()

    said = _make(target, "--directory", str(tmp_path)).stdout

    assert f"ours: -m memorymark_site{config}\n" in said


def test_make_run_needs_no_env_file() -> None:
    said = _make("--dry-run", "worker", "ENV_FILE=no.env").stdout

    assert said.split()[-3:] == ["-m", "memorymark_site", "cluster"]


def test_every_requirement_is_pinned_and_platform_independent() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]

    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    assert "torch==2.13.0" in pins
    assert not [pin for pin in pins if pin.lower().startswith("nvidia-c")]


def test_the_lock_has_hashes_of_every_requirement_but_torch() -> None:
    pins = re.findall(r"^[\w.-]+==[\w.]+$", (ROOT / "requirements.txt").read_text(), re.M)
    locked = re.findall(
        r"^(\S+==[\w.]+) \\\n    --hash=sha256:", (ROOT / "requirements.lock").read_text(), re.M
    )

    assert {_normal(pin) for pin in locked} == {_normal(pin) for pin in pins} - {"torch==2.13.0"}


def _normal(pin: str) -> str:
    return re.sub(r"[-_.]+(?=.*==)", "-", pin).lower()
