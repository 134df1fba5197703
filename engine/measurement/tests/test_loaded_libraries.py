"""Trials start with libraries loaded: each in a fresh fork, none left over, the GPU untouched."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from unittest.mock import patch

import psutil
import pytest
import torch

from engine.measurement import child, loader, parent
from engine.measurement.parent import OutOfTime, measure, run_together
from engine.measurement.protocol import TrialOrder, order_line
from engine.measurement.trial_process import Ended, TrialProcess, libraries
from engine.script.process.fork import Done, in_a_fork
from engine.tests.shared import SMALL_BERT

ROOT = Path(__file__).parents[3]
ANSWERING = """
import json, os, sys, time
order = input()
if order == "die":
    os.kill(os.getpid(), 9)
if order == "fail":
    raise ValueError("no such kernel")
if order == "hang":
    time.sleep(600)
print(json.dumps({
    "process": os.getpid(), "order": order, "words": sys.argv[1:],
    "loaded": "torch" in sys.modules, "variable": os.environ.get("ASKED_FOR"),
}))
if order == "status":
    sys.exit(3)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux only")


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a loader that stays for all tests, since loading takes seconds."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "answering.py").write_text(ANSWERING)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    with libraries.kept():
        yield environment


def run(order: str, environment: dict[str, str], *words: str, seconds: float = 120.0) -> Ended:
    command = [sys.executable, "-m", "answering", *words]
    return run_together(command, [order], environment, seconds)[0]


def answer(order: str, environment: dict[str, str], *words: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(run(order, environment, *words).answer)
    return found


def the_loader() -> psutil.Process:
    (found,) = psutil.Process().children()
    return found


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, "it did not happen within 60 s"
        time.sleep(0.01)


@pytest.mark.longer
def test_every_order_has_a_process_of_its_own_with_the_libraries(kept: dict[str, str]) -> None:
    found = [answer("one", kept, "two", "words") for _ in range(3)]
    assert len({one["process"] for one in found}) == 3
    assert all(one["loaded"] and one["order"] == "one" for one in found)
    assert all(one["words"] == ["two", "words"] for one in found)


@pytest.mark.longer
def test_several_orders_are_carried_out_at_once(kept: dict[str, str]) -> None:
    command = [sys.executable, "-m", "answering"]
    ended = run_together(command, ["one", "two"], kept, 120.0)
    assert {json.loads(end.answer)["order"] for end in ended.values()} == {"one", "two"}


@pytest.mark.longer
def test_its_end_is_reported_as_of_a_process_of_our_own(kept: dict[str, str]) -> None:
    assert run("status", kept).status == 3
    assert run("die", kept).status == -9
    failed = run("fail", kept)
    assert (failed.status, failed.last_words) == (1, "ValueError: no such kernel")


@pytest.mark.longer
def test_one_that_hangs_is_ended(kept: dict[str, str]) -> None:
    answer("one", kept)
    with pytest.raises(OutOfTime):
        run("hang", kept, seconds=0.3)
    until(lambda: not the_loader().children(recursive=True))


def test_another_command_than_a_module_starts_by_itself(kept: dict[str, str]) -> None:
    code = "import sys; input(); print('torch' in sys.modules)"
    assert run_together([sys.executable, "-c", code], ["one"], kept, 60.0)[0].answer == "False"


@pytest.mark.slow
def test_another_environment_loads_them_anew(kept: dict[str, str]) -> None:
    answer("one", kept)
    before = the_loader()
    other = kept | {"ASKED_FOR": "expandable_segments:True"}
    found = answer("two", other)
    assert (found["variable"], found["loaded"]) == ("expandable_segments:True", True)
    assert the_loader().pid != before.pid
    assert not before.is_running()


@pytest.mark.slow
def test_where_nothing_can_be_forked_it_starts_by_itself(kept: dict[str, str]) -> None:
    answer("one", kept)
    the_loader().kill()
    until(lambda: the_loader().status() == psutil.STATUS_ZOMBIE)
    found = answer("two", kept)
    assert (found["order"], found["loaded"]) == ("two", False)


def test_a_process_that_has_opened_a_gpu_forks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not loader._has_opened_a_gpu()
    device = tmp_path / "nvidia0"
    device.touch()
    monkeypatch.setattr(loader, "_DEVICES", (str(tmp_path),))
    with device.open():
        assert loader._has_opened_a_gpu()


CALLER = """
import os, sys
from engine.measurement.parent import run_together
from engine.measurement.trial_process import libraries
with libraries.kept():
    run_together([sys.executable, "-m", "answering"], [{order!r}], os.environ, 300.0)
    print("carried out", flush=True)
    input()
"""


def caller(order: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", dedent(CALLER.format(order=order))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )


@pytest.mark.slow
def test_none_is_left_once_nothing_is_kept(kept: dict[str, str]) -> None:
    with caller("one", kept) as process:
        assert process.stdout is not None
        process.stdout.readline()
        left = psutil.Process(process.pid).children(recursive=True)
        assert left
        process.communicate("go on\n")
    until(lambda: not any(one.is_running() for one in left))


@pytest.mark.slow
def test_all_die_with_the_process_that_asked(kept: dict[str, str]) -> None:
    with caller("hang", kept) as process:
        asking = psutil.Process(process.pid)
        until(lambda: len(asking.children(recursive=True)) == 3)  # loader, keeper and trial
        left = asking.children(recursive=True)
        process.kill()
    until(lambda: not any(one.is_running() for one in left))


def test_a_process_without_an_order_ends_by_itself_and_leaves_the_device_alone() -> None:
    def start(done: Done[tuple[object, list[str]]]) -> None:
        asked: list[str] = []
        with (
            patch.object(torch.cuda, "is_available", lambda: asked.append("available")),
            patch.object(torch.cuda, "_lazy_init", lambda: asked.append("initialised")),
        ):
            try:
                child.main()  # whose standard input is empty here
            except SystemExit as end:
                done((end.code, asked))

    assert in_a_fork(start) == (0, [])


@pytest.mark.slow
def test_nor_does_a_process_touch_it_while_it_loads() -> None:
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
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_trials_in_forks_measure_the_same(kept: dict[str, str]) -> None:
    order = TrialOrder(SMALL_BERT, 2, memory_limit_bytes=4 * 2**30)
    forked = [measure(order) for _ in range(2)]
    ends: queue.SimpleQueue[Ended] = queue.SimpleQueue()
    alone = TrialProcess(parent.CHILD, os.environ)
    alone.carry_out(order_line("trial", order.to_json()), ends.put)
    found = json.loads(ends.get().answer)
    alone.end()
    assert {trial.peak_allocated_bytes for trial in forked} == {found["peak_allocated_bytes"]}
    assert all(trial.step_seconds for trial in forked)
