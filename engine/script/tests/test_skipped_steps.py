"""Conditions that skip a step: with values that always do, a script would never reach one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.process.fork import Done, Fork
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import CannotTrace, trace_script
from engine.script.values.limit import Limit, ReachesNoStep
from engine.script.values.placeholders import OTHERS, Values

LOOP = """
import sys
import torch
from torch import nn

model = nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    loss = model(torch.rand(int(sys.argv[2]), 64).cuda()).square().sum()
    {before_backward}
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {before_step}
    optimizer.step()
"""


def written(folder: Path, name: str, before_backward: str = "", before_step: str = "") -> Program:
    code = LOOP.format(before_backward=before_backward, before_step=before_step)
    (folder / name).write_text(code)
    return Program(str(folder / name), ("--batch-size", "8"), "--batch-size")


@pytest.mark.longer
@pytest.mark.parametrize(
    ("before_backward", "before_step"),
    [
        ("", "if norm > 1e3: continue"),
        pytest.param("", "if norm.item() > 1e3: continue", marks=pytest.mark.slow),
        pytest.param("", "if not torch.isfinite(norm): continue", marks=pytest.mark.slow),
        pytest.param("if loss.item() > 5e3: continue", "", marks=pytest.mark.slow),
    ],
)
def test_a_condition_that_skips_steps_does_not_hang(
    tmp_path: Path, before_backward: str, before_step: str
) -> None:
    program = written(tmp_path, "train.py", before_backward, before_step)
    warned: list[str] = []
    found = trace_script_at_every_batch_size(program, A10, warned.append).at(8)
    assert warned == []
    plain = trace_script(written(tmp_path, "always.py"), 8, A10)
    assert found.peak_by_category() == plain.peak_by_category()


@pytest.mark.longer
def test_far_more_memory_before_a_step_depends_on_the_value(tmp_path: Path) -> None:
    adds = "loss = sum([loss] + [model(torch.rand(1024, 64).cuda()).sum() for _ in range(2000)])"
    program = written(tmp_path, "train.py", f"if loss > 5e3: {adds}")
    with pytest.raises(CannotTrace, match=r"memory depends on a tensor's value.*if loss > 5e3"):
        trace_script_at_every_batch_size(program, A10, print)


def others(operators: int, peak_allocated_bytes: int = 2_000) -> Values:
    made = Values(OTHERS[0])
    made.limit.set_by(operators, peak_allocated_bytes)
    return made


def runs(values: Values, operators: int) -> None:
    for _ in range(operators):
        values.one_more_operator()


@pytest.mark.parametrize(("first", "allowed"), [(500, 1_501), (3, 1_001)])
def test_other_values_may_run_far_longer_than_the_first_and_no_more(
    first: int, allowed: int
) -> None:
    other = others(first)
    runs(other, 2 * allowed)
    with pytest.raises(ReachesNoStep, match=f"no step is reached in {2 * allowed + 1:,} operators"):
        other.one_more_operator()


def test_memory_that_still_rises_is_waited_for() -> None:
    other = others(3)
    other.limit.peak = lambda: min(other.operators, 1_900)
    runs(other, 4 * 1_001 + 2)
    with pytest.raises(ReachesNoStep) as error:
        other.one_more_operator()
    assert error.value.peak_allocated_bytes == 1_900


def test_more_memory_than_that_of_the_steps_is_enough() -> None:
    other = others(3)
    other.limit.peak = lambda: 2_001
    runs(other, 1_000)
    with pytest.raises(ReachesNoStep):
        other.one_more_operator()


def test_what_has_reached_a_step_may_run_on() -> None:
    other = others(3)
    other.limit.lift()
    runs(other, 5_000)


def test_a_limit_holds_for_a_process_that_began_before_it_was_set() -> None:
    limit, (asking, telling) = Limit(), os.pipe()

    def work(done: Done[None]) -> None:
        limit.check(10**9)
        os.read(asking, 1)
        limit.check(10**9)
        limit.check(10**10)

    fork = Fork(work)
    limit.set_by(10, 0)
    os.write(telling, b"!")
    with pytest.raises(ReachesNoStep):
        fork.answer()
