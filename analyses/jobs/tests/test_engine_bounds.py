"""The bounds of a hostile engine, such as one whose library ran code from an upload."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pytest_django import Settings

from analyses.jobs import engine_bounds
from analyses.jobs.engine_process import EngineProcess

HOSTILE = """
import json, os, resource, subprocess, sys
sys.stdin.readline()

def tried(work):
    try:
        return work()
    except OSError as error:
        return error.strerror

secrets = {data!r}
print(json.dumps({{
    "variables": sorted(os.environ),
    "user": os.getuid(),
    "groups": os.getgroups(),
    "key": tried(lambda: open(secrets + "/secret-key").read()),
    "database": tried(lambda: open(secrets + "/memorymark.sqlite3").read()),
    "parent": tried(lambda: open("/proc/%d/environ" % os.getppid()).read(0)),
    "written": tried(lambda: open(secrets + "/evil", "w").write("x")),
    "killed": tried(lambda: os.kill(os.getppid(), 0)),
    "core": resource.getrlimit(resource.RLIMIT_CORE)[1],
    "processes": resource.getrlimit(resource.RLIMIT_NPROC)[1],
    "score": open("/proc/self/oom_score_adj").read().strip(),
    "home": os.environ.get("HOME"),
}}), flush=True)
subprocess.Popen(["sleep", "600"])
sys.stdin.readline()
"""

on_linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux has these bounds")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts an engine as another")


@pytest.fixture
def data(tmp_path: Path, settings: Settings) -> Path:
    """A data folder with secrets in it, which only its owner can enter."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "secret-key").write_text("the key of the lab")
    (folder / "memorymark.sqlite3").write_text("SQLite")
    settings.DATA_DIR = folder
    settings.BASE_DIR = Path("/")  # the system's Python may not see the repository
    return folder


@pytest.fixture
def python() -> str:
    """A Python that every account of the machine may run."""
    found = shutil.which("python3", path="/usr/bin")
    if found is None:
        pytest.skip("no Python of the system")
    return found


def _found_by_hostile(python: str, data: Path) -> Any:
    engine = EngineProcess([python, "-c", HOSTILE.format(data=str(data))])
    try:
        engine.send({})
        lines: list[str] = []
        while not lines and not engine.silent:
            lines = [line.text for line in engine.read(1) if line.stream == "stdout"]
        return json.loads(lines[0])
    finally:
        engine.end()


def _alive_in_group(group: int) -> Iterator[int]:
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid


@on_linux
def test_a_hostile_engine_finds_no_secret_among_its_variables(
    monkeypatch: pytest.MonkeyPatch, data: Path, python: str
) -> None:
    secrets = {"SECRET_KEY", "DATABASE_URL", "EMAIL_URL", "MEMORYMARK_METRICS_TOKEN"}
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    found = _found_by_hostile(python, data)
    assert not secrets & set(found["variables"])


@on_linux
def test_a_hostile_engine_has_bounded_processes_and_dies_first(data: Path, python: str) -> None:
    found = _found_by_hostile(python, data)
    assert found["core"] == 0
    assert 0 < found["processes"] <= engine_bounds.MAX_PROCESSES
    assert found["score"] == "1000"


@on_linux
@as_root
def test_an_engine_of_an_account_of_its_own_reads_nothing_of_the_lab(
    data: Path, python: str, settings: Settings
) -> None:
    settings.ENGINE_USER = "nobody"
    found, nobody = _found_by_hostile(python, data), pwd.getpwnam("nobody")
    assert found["user"] == nobody.pw_uid
    assert 0 not in found["groups"]
    assert (found["key"], found["database"]) == ("Permission denied", "Permission denied")
    assert found["parent"] == "Permission denied"
    assert found["written"] == "Permission denied"
    assert found["killed"] == "Operation not permitted"
    assert found["home"] == nobody.pw_dir
    assert not (data / "evil").exists()


@pytest.mark.longer
@on_linux
@as_root
def test_an_engine_of_an_account_of_its_own_is_ended_with_its_children(
    data: Path, python: str, settings: Settings
) -> None:
    settings.ENGINE_USER = "nobody"
    engine = EngineProcess([python, "-c", "import time, os; os.fork(); time.sleep(600)"])
    engine.read(0.5)
    engine.end()
    deadline = time.monotonic() + 10  # signals to a group arrive one after another
    while (left := list(_alive_in_group(engine.pid))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def test_without_an_account_of_its_own_it_runs_as_the_worker(settings: Settings) -> None:
    assert engine_bounds.account() == {}
    kept = engine_bounds.environment({"PATH": "/bin", "SECRET_KEY": "s", "DATABASE_URL": "d"})
    assert kept["PATH"] == "/bin"
    assert not {"SECRET_KEY", "DATABASE_URL"} & kept.keys()
    assert kept["ENGINE_TRACES"] == str(settings.DATA_DIR / "traces")


def test_an_engine_of_an_account_of_its_own_keeps_its_traces_at_home(settings: Settings) -> None:
    settings.ENGINE_USER = "nobody"
    kept = engine_bounds.environment({"HOME": "/var/lib/memorymark"})
    assert "ENGINE_TRACES" not in kept
    assert (kept["HOME"], kept["USER"]) == (pwd.getpwnam("nobody").pw_dir, "nobody")
