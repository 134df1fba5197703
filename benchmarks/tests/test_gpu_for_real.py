"""The GPU benchmark with real processes on the CPU, with small models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu.commands import TOOLS
from benchmarks.gpu.results import Search, load
from benchmarks.gpu.run import QUICK_ON_A_CPU
from benchmarks.gpu.workloads import QUICK

QUICK_RUN = ["--device", "cpu", "--quick", "--only", "small-bert"]


@pytest.mark.slow
@pytest.mark.torch
def test_fixed_costs_are_measured_in_order() -> None:
    from engine.selfcheck.first_uses import Counters, fixed_costs

    counts = iter(range(100))
    found = list(fixed_costs("cpu", lambda: Counters(next(counts), 0, 0, 0)))
    assert [cost.device_used_bytes for cost in found] == list(range(len(found)))
    assert found[0].after == "CUDA context, one tensor"
    assert found[0].tensor_bytes == 4
    assert found[2].tensor_bytes == 3 * 64 * 64 * 4


@pytest.mark.torch
def test_a_missing_tool_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.gpu import child
    from benchmarks.searchers import Searcher

    def never(_: Any) -> int:
        raise AssertionError

    monkeypatch.setattr(child, "SEARCHERS", (Searcher("other", "no_such_tool", never),))
    asked = Search("other", None, "small-bert", 2**24)
    assert child.search(asked, QUICK[0].workload) == asked


@pytest.mark.longer
@pytest.mark.torch
def test_a_tool_searches_in_its_own_process_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchmarks.gpu import child

    monkeypatch.setattr(child, "device_kind", lambda: "cpu")
    asked = Search("linear scan by 8", None, "small-bert", 12 * 2**20)
    found = child.search(asked, QUICK[0].workload)
    assert found.answer is not None
    assert found.answer % 8 == 0
    assert found.trials == len(found.tried)
    assert found.tried[-1] == (found.answer + 8, False)


def run_quick(path: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu", *QUICK_RUN, "--out", str(path), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def children_of(process: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(stat.parent.name))
    return found


def ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(true: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the processes of Linux")
def test_a_killed_run_leaves_no_process_and_resumes(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    first = run_quick(path)
    try:
        wait_until(lambda: path.exists() and bool(load(path).rows), 240)
        children = children_of(first.pid)
        assert children
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    wait_until(lambda: all(map(ended, children)), 30)
    before = load(path)
    assert before.rows
    second = run_quick(path, "--budget-seconds", "500")
    said, _ = second.communicate(timeout=550)
    assert second.returncode == 0, said
    after = load(path)
    assert [replace(r, predicted=None) for r in after.rows[: len(before.rows)]] == before.rows
    assert not after.left_out
    assert not after.failures
    assert after.largest("small-bert", QUICK_ON_A_CPU.first) is not None
    assert all(row.predicted is not None for row in after.rows)
    for one in after.rows:  # the CPU's memory is predicted to the byte
        if one.predicted is not None and one.measured.fits:
            assert one.predicted.peak_allocated_bytes == one.measured.peak_allocated_bytes
    assert len(after.searches) == len(TOOLS)
    ours = next(search for search in after.searches if search.tool == "MemoryMark")
    assert ours.answer == after.largest("small-bert", QUICK_ON_A_CPU.first)
    assert command.main(["report", str(path)]) == 0
