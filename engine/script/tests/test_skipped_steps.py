"""Conditions that skip a step: with values that always do, a script would never reach one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.process.fork import Fork
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import trace_script
from engine.script.values.limit import Limit
from engine.script.values.placeholders import FIRST, OTHERS, EndlessLoop, Values

ENDLESSLY = """
import sys
import torch
from torch import nn

model = nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.rand(int(sys.argv[2]), 64).cuda()).square().sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {skipped}
        continue
    optimizer.step()
"""


@pytest.mark.parametrize("skipped", ["if norm > 1e3:", "if norm.item() > 1e3:"])
def test_a_condition_that_skips_steps_does_not_hang(tmp_path: Path, skipped: str) -> None:
    path, always = tmp_path / "train.py", tmp_path / "always.py"
    path.write_text(ENDLESSLY.replace("{skipped}", skipped))
    always.write_text(ENDLESSLY.replace("{skipped}", "if norm is None:"))
    program, plain = (
        Program(str(one), ("--batch-size", "8"), "--batch-size") for one in (path, always)
    )
    warned: list[str] = []
    found = trace_script_at_every_batch_size(program, A10, warned.append).at(8)
    assert warned == []
    assert found.peak_by_category() == trace_script(plain, 8, A10).peak_by_category()


def test_other_values_may_run_far_longer_than_the_first_and_no_more() -> None:
    first = Values(FIRST, operators=500)
    other = first.others(OTHERS[0])
    for _ in range(5_000):
        other.one_more_operator()
    with pytest.raises(EndlessLoop, match="no step is reached in 5,001 operators"):
        other.one_more_operator()


def test_few_operators_of_the_first_allow_more() -> None:
    other = Values(FIRST, operators=3).others(OTHERS[0])
    for _ in range(1_000):
        other.one_more_operator()
    with pytest.raises(EndlessLoop):
        other.one_more_operator()


def test_a_limit_holds_for_a_process_that_began_before_it_was_set() -> None:
    limit, (asking, telling) = Limit(), os.pipe()

    def passed() -> bool:
        os.read(asking, 1)
        return limit.is_passed_by(10**9)

    assert not limit.is_passed_by(10**9)
    fork: Fork[bool] = Fork(lambda done: done(passed()))
    limit.set_by(10)
    os.write(telling, b"!")
    assert fork.answer()
