from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analyses.jobs import engine_process
from analyses.jobs.engine_process import (
    MAX_LINE_BYTES,
    EngineProcess,
    Engines,
    LineSplitter,
)
from analyses.jobs.environments import OWN

Behave = Callable[[str], list[str]]


@pytest.fixture
def engines() -> Iterator[Engines]:
    engines = Engines()
    yield engines
    engines.close()


def test_the_engine_is_started_ahead_of_its_request(engines: Engines, fake_engine: Behave) -> None:
    fake_engine("success")
    engines.prepare()
    first = engines.take()
    engines.prepare()
    second = engines.take()

    assert first.pid != second.pid
    assert first.returncode is None  # it waits for its request
    first.end()
    second.end()


def test_preparing_twice_starts_one_engine(engines: Engines, fake_engine: Behave) -> None:
    fake_engine("success")
    engines.prepare()
    waiting = engines._warm.get(OWN)
    engines.prepare()

    assert engines._warm.get(OWN) is waiting


def test_a_dead_warm_engine_is_replaced(engines: Engines, fake_engine: Behave) -> None:
    fake_engine("success")
    engines.prepare()
    dead = engines._warm.get(OWN)
    assert dead is not None
    os.kill(dead.pid, 9)
    dead._process.wait()

    engine = engines.take()
    assert engine is not dead
    assert engine.returncode is None
    engine.end()


def test_an_engine_is_reused_for_the_next_request(engines: Engines, fake_engine: Behave) -> None:
    fake_engine("success")
    first = engines.take()
    engines.give_back(first)

    assert engines.take() is first
    first.end()


def test_an_engine_that_lets_others_first_gets_what_they_leave(
    engines: Engines, fake_engine: Behave
) -> None:
    fake_engine("success")
    engine = engines.take()
    engine.let_others_first()
    assert os.getpriority(os.PRIO_PROCESS, engine.pid) == engine_process.NICENESS
    autogroup = Path(f"/proc/{engine.pid}/autogroup")
    if autogroup.exists():
        assert autogroup.read_text().split()[-1] == str(engine_process.NICENESS)
    engine.end()
    engine.let_others_first()  # harmless, as the next request says that it has ended


def test_an_engine_is_replaced_after_many_requests(
    engines: Engines, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "MAX_ANSWERS", 2)
    fake_engine("success")
    first = engines.take()
    engines.give_back(first)
    engines.give_back(engines.take())

    assert first.returncode is not None
    second = engines.take()
    assert second is not first
    second.end()


def test_an_engine_that_has_grown_large_is_replaced(
    engines: Engines, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "MAX_BYTES", 1)
    fake_engine("success")
    first = engines.take()
    assert first.is_large()
    engines.give_back(first)

    assert first.returncode is not None
    assert not first.is_large()  # it holds nothing any longer


@pytest.mark.longer
def test_an_engine_dies_with_its_parent(fake_engine: Behave, tmp_path: Path) -> None:
    """A killed worker leaves no engine behind, since the engine's standard input ends."""
    command = fake_engine("hang")
    program = (
        "import django, os, signal, sys\n"
        "os.environ['DJANGO_SETTINGS_MODULE'] = 'memorymark_site.settings'\n"
        "django.setup()\n"
        "from analyses.jobs.engine_process import EngineProcess\n"
        f"print(EngineProcess({command!r}).pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    engine = int(parent.stdout)

    until = time.monotonic() + 60
    while time.monotonic() < until:
        stat = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(engine)], capture_output=True
        )  # from the system's own path
        if stat.stdout.strip()[:1] in (b"", b"Z"):
            return
        time.sleep(0.05)
    os.kill(engine, 9)
    pytest.fail("the engine outlived its parent")


def test_sending_to_a_dead_engine_is_reported(
    fake_engine: Behave, caplog: pytest.LogCaptureFixture
) -> None:
    engine = EngineProcess(fake_engine("dead"))
    engine._process.wait()
    engine.send({"model": "bert"})
    assert "exited before it received its request" in caplog.text
    engine.end()


def test_a_frozen_engine_does_not_block_its_caller(fake_engine: Behave) -> None:
    """Its pipe is full; the rest of the request is written once it resumes."""
    engine = EngineProcess(fake_engine("resume"))
    os.kill(engine.pid, signal.SIGSTOP)
    known = [{"batch_size": size} for size in range(1, 20_000)]
    engine.send({"request": {"model": "bert"}, "trials": known})  # more than any pipe holds
    assert engine.read(0.05) == []

    os.kill(engine.pid, signal.SIGCONT)
    lines: list[str] = []
    while not any("known [1, 2, 3," in line for line in lines):
        lines += [line.text for line in engine.read(10)]
        assert not engine.silent
    engine.end()


def test_ending_twice_is_harmless(fake_engine: Behave) -> None:
    engine = EngineProcess(fake_engine("success"))
    engine.end()
    engine.end()

    assert engine.returncode is not None


def test_reading_waits_no_longer_than_requested(fake_engine: Behave) -> None:
    engine = EngineProcess(fake_engine("success"))
    started = time.monotonic()

    assert engine.read(0.1) == []
    assert time.monotonic() - started < 30  # it would wait forever
    engine.end()


@pytest.mark.parametrize("cut", [1, 2, 5, 100])
def test_lines_are_joined_however_they_arrive(cut: int) -> None:
    text = "héllo\r\n\nwörld\nrest".encode()
    splitter = LineSplitter()
    lines = [
        line
        for start in range(0, len(text), cut)
        for line in splitter.feed(text[start : start + cut])
    ]

    assert lines + splitter.end() == ["héllo", "", "wörld", "rest"]
    assert splitter.end() == []


def test_an_overlong_line_is_cut_off_and_the_next_is_complete() -> None:
    splitter = LineSplitter()
    lines = []
    for _ in range(3):
        lines += splitter.feed(b"x" * MAX_LINE_BYTES)
    lines += splitter.feed(b"tail\nnext\n")

    assert [len(line) for line in lines] == [MAX_LINE_BYTES, 4]
    assert lines[-1] == "next"
