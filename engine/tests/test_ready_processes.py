"""The next trial's process is ready: fresh, still while steps are timed, and never left over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from engine.measurement import parent
from engine.measurement.parent import measure, run_together
from engine.measurement.protocol import TrialOrder
from engine.measurement.trial_process import TIMING, waiting
from engine.tests.conftest import SMALL_BERT

ECHO = [sys.executable, "-c", "import os; print(os.getpid(), input(), flush=True)"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kept ready on Linux only")


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, "it did not happen within 60 s"
        time.sleep(0.01)


def children() -> list[psutil.Process]:
    return psutil.Process().children()


def ask(order: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """The process that answered, and what it was asked."""
    answer = run_together(ECHO, [order], environment or dict(os.environ), 60.0)[0].answer
    process, _, asked = answer.partition(" ")
    return int(process), asked


def test_the_next_process_is_started_while_an_order_is_carried_out() -> None:
    with waiting.kept_ready():
        _, first = ask("one")
        (ready,) = children()
        found, second = ask("two")
        assert (first, second) == ("one", "two")
        assert found == ready.pid


def test_every_order_has_a_process_of_its_own() -> None:
    with waiting.kept_ready():
        assert len({ask("order")[0] for _ in range(4)}) == 4


def test_none_is_left_once_nothing_is_kept_ready() -> None:
    with waiting.kept_ready():
        ask("one")
        assert children()
    assert not children()
    ask("two")
    assert not children()


def test_none_is_left_after_an_error() -> None:
    def fail() -> None:
        with waiting.kept_ready():
            ask("one")
            raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        fail()
    assert not children()


def test_another_environment_gets_another_process() -> None:
    with waiting.kept_ready():
        ask("one")
        (ready,) = children()
        found, _ = ask("two", os.environ | {"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
        assert found != ready.pid
        assert not ready.is_running()


def test_one_that_has_died_is_not_given_an_order() -> None:
    with waiting.kept_ready():
        ask("one")
        (ready,) = children()
        ready.kill()
        until(lambda: ready.status() == psutil.STATUS_ZOMBIE)
        assert ask("two")[1] == "two"


def test_it_stands_still_while_steps_are_timed_and_goes_on_afterwards(tmp_path: Path) -> None:
    """The ready process counts; the trial lets it count, begins to time, and looks again."""
    code = f"""
        import pathlib, sys, threading, time
        told = pathlib.Path({str(tmp_path)!r})
        me = told / f"count-{{time.monotonic_ns()}}"
        def count():
            while True:
                with me.open("a") as file:
                    file.write(".")
                time.sleep(0.001)
        threading.Thread(target=count, daemon=True).start()
        input()
        others = lambda: sum(f.stat().st_size for f in told.iterdir() if f != me)
        end = time.monotonic() + 60
        while not others():
            assert time.monotonic() < end
            time.sleep(0.01)
        print({TIMING!r}, flush=True)
        time.sleep(0.3)  # the parent hears of it in another thread
        before = others()
        time.sleep(0.5)
        print(others() - before, flush=True)
        """
    command = [sys.executable, "-c", dedent(code)]
    with waiting.kept_ready():
        ended = run_together(command, ["one"], os.environ, 60.0)[0]
        assert (ended.status, ended.answer) == (0, "0"), ended.last_words
        (ready,) = children()
        assert ready.status() != psutil.STATUS_STOPPED


def test_one_that_stands_still_dies_with_its_parent(tmp_path: Path) -> None:
    code = """
        import os, signal, sys
        from engine.measurement.parent import CHILD
        from engine.measurement.trial_process import waiting
        from engine.core.process import die_with_parent
        with waiting.kept_ready():
            waiting.start(CHILD, os.environ, 1)
            ready = waiting._processes[0]._process.pid
            print(ready, flush=True)
            input()
            waiting.stand_still()
            os.kill(os.getpid(), signal.SIGKILL)
        """
    asker = subprocess.Popen(
        [sys.executable, "-c", dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert asker.stdout is not None
    ready = psutil.Process(int(asker.stdout.readline()))
    until(lambda: "engine" in " ".join(ready.cmdline()) and ready.cpu_times().user > 0.3)
    asker.communicate("go on\n")
    until(lambda: not ready.is_running() or ready.status() == psutil.STATUS_ZOMBIE)


def test_a_process_without_an_order_ends_by_itself_and_leaves_the_device_alone() -> None:
    code = """
        import torch
        asked = []
        torch.cuda.is_available = lambda: asked.append("available") or False
        torch.cuda._lazy_init = lambda: asked.append("initialised")
        from engine.measurement import child
        try:
            child.main()
        except SystemExit as end:
            assert not end.code
        assert not asked, asked
        """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_trials_in_processes_that_were_ready_measure_the_same() -> None:
    order = TrialOrder(SMALL_BERT, 2, memory_limit_bytes=4 * 2**30)
    alone = measure(order)
    with waiting.kept_ready():
        kept = [measure(order) for _ in range(2)]
    assert {trial.peak_allocated_bytes for trial in kept} == {alone.peak_allocated_bytes}
    assert all(trial.step_seconds for trial in kept)
    assert parent.CHILD[-1] == "engine.measurement"
