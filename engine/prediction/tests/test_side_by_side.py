"""Tasks in forked processes find what they would find here."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from engine.core.errors import EngineError, InvalidInput
from engine.prediction.plans.side_by_side import SideBySide, processes_here
from engine.tracing.trace import NeedsTwoSamples

TASKS: dict[str, Callable[[], int]] = {"one": lambda: 1, "two": lambda: 2, "three": lambda: 3}

several = pytest.mark.parametrize("processes", [1, 2])


@several
def test_every_task_is_done_once(processes: int) -> None:
    tasks: SideBySide[str, int] = SideBySide(processes)
    for name, task in TASKS.items():
        tasks.add(name, task)
    assert dict(tasks.results()) == {"one": 1, "two": 2, "three": 3}


@several
def test_tasks_may_be_added_while_others_run(processes: int) -> None:
    tasks: SideBySide[int, int] = SideBySide(processes)
    tasks.add(0, lambda: 0)
    seen = []
    for key, _ in tasks.results():
        seen.append(key)
        if key < 3:
            tasks.add(key + 1, lambda: 0)
    assert seen == [0, 1, 2, 3]


def test_a_task_may_begin_while_this_process_goes_on() -> None:
    receiving, sending = os.pipe()
    tasks: SideBySide[str, int] = SideBySide(2)
    for name in TASKS:
        tasks.add(name, lambda: os.write(sending, b"begun"))
    with tasks:
        tasks.begin()
        assert os.read(receiving, 5) == b"begun"
        assert not select.select([receiving], [], [], 0.2)[0]  # the others wait: two work now
        assert {name for name, _ in tasks.results()} == {*TASKS}


def test_with_one_process_nothing_begins_before_its_turn() -> None:
    tasks: SideBySide[str, int] = SideBySide(1)
    tasks.add("one", pytest.fail)
    with tasks:
        tasks.begin()


def test_what_was_begun_ends_where_its_result_is_not_wanted() -> None:
    receiving, sending = os.pipe()
    tasks: SideBySide[str, int] = SideBySide(2)

    def never_ends() -> int:
        os.write(sending, str(os.getpid()).encode())
        while True:
            signal.pause()

    tasks.add("one", never_ends)
    with tasks:
        tasks.begin()
        begun = int(os.read(receiving, 20))
    with pytest.raises(ProcessLookupError):
        os.kill(begun, 0)


def test_what_comes_first_is_done_before_what_waits() -> None:
    tasks: SideBySide[str, int] = SideBySide(1)
    tasks.add("one", TASKS["one"])
    tasks.add("two", TASKS["two"], first=True)
    assert [name for name, _ in tasks.results()] == ["two", "one"]


@several
@pytest.mark.parametrize("error", [InvalidInput({"gpu": "no"}), NeedsTwoSamples()])
def test_an_error_arrives_as_it_was_raised(processes: int, error: InvalidInput) -> None:
    def fail() -> int:
        raise error

    tasks: SideBySide[str, int] = SideBySide(processes)
    tasks.add("it", fail)
    tasks.add("other", TASKS["two"])
    found = dict(tasks.results())
    arrived = found["it"]
    assert isinstance(arrived, type(error))
    assert (arrived.fields, str(arrived)) == (error.fields, str(error))
    assert found["other"] == 2


def die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_a_killed_process_is_an_error() -> None:
    tasks: SideBySide[str, int] = SideBySide(2)
    tasks.add("it", die)
    tasks.add("other", TASKS["two"])
    found = dict(tasks.results())
    assert isinstance(found["it"], EngineError)
    assert "most likely host memory ran out" in str(found["it"])
    assert found["other"] == 2


def test_there_is_a_process_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, processes in ((1, 1), (2, 2), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: range(n), raising=False)
        assert processes_here() == processes
    monkeypatch.delattr(os, "fork")
    assert processes_here() == 1


@pytest.mark.slow
def test_it_works_while_a_thread_reads_standard_input() -> None:
    """As in ``memorymark run``, whose children would wait for ever to close it."""
    code = textwrap.dedent("""
        import sys, threading
        threading.Thread(target=sys.stdin.read, daemon=True).start()
        from engine.prediction.plans.side_by_side import SideBySide
        tasks = SideBySide(2)
        for number in range(3):
            tasks.add(number, lambda: "done")
        print(*(found for _, found in tasks.results()), flush=True)
    """)
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with started:
        try:
            assert started.stdout is not None
            ready, _, _ = select.select([started.stdout], [], [], 30)
            assert ready
            assert started.stdout.readline() == "done done done\n"
        finally:
            started.kill()
