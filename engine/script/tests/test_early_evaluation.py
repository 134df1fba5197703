"""An evaluation between the first steps is traced as far as it shows something."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import Followed, follow
from engine.tests.shared import slow

pytestmark = pytest.mark.torch

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch = int(sys.argv[2]) if len(sys.argv) > 1 else 4
loader = DataLoader(TensorDataset(torch.randn(64, 32)), batch_size=batch)
held_out = DataLoader(TensorDataset(torch.randn({batches} * 8, 32)), batch_size=8)
model = nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x,) in enumerate(loader):
    optimizer.zero_grad()
    model(x.cuda()).square().mean().backward()
    optimizer.step()
    if step == {at}:
        seen, kept = 0, []
        with torch.no_grad():
            for (x,) in held_out:
                out = model(x.cuda())
                seen += 1
                {keeps}
        {then}
"""


def traced(
    folder: Path, batches: int, keeps: str = "pass", then: str = "", at: int = 0
) -> Followed:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(batches=batches, keeps=keeps, then=then, at=at))
    return follow(Program.of(path, (), "--batch"), 4, A10, None)


@pytest.mark.longer
def test_a_long_evaluation_takes_no_longer_than_a_short_one(tmp_path: Path) -> None:
    short, long = traced(tmp_path, 20), traced(tmp_path, 200)
    assert long.values.operators == short.values.operators
    assert long.trace.sizes == short.trace.sizes


@pytest.mark.longer
@pytest.mark.parametrize("keeps", ["kept.append(out)", slow("kept.append(out.cpu())")])
def test_one_that_keeps_something_of_each_batch_is_traced_to_its_end(
    tmp_path: Path, keeps: str
) -> None:
    short, long = traced(tmp_path, 10, keeps), traced(tmp_path, 20, keeps)
    assert long.values.operators >= short.values.operators + 10


@pytest.mark.longer
@pytest.mark.parametrize("at", [1, slow(2)])
def test_one_in_a_later_step_takes_no_longer_either(tmp_path: Path, at: int) -> None:
    short, long = traced(tmp_path, 10, at=at), traced(tmp_path, 200, at=at)
    assert long.values.operators == short.values.operators
    assert long.trace.sizes == short.trace.sizes


@pytest.mark.longer
def test_the_time_of_one_in_the_last_traced_step_is_that_of_all_its_batches(
    tmp_path: Path,
) -> None:
    """As where each batch is run since it keeps a number on the host."""
    cut, whole = (traced(tmp_path, 20, keeps, at=1) for keeps in ("pass", "kept.append(x.cpu())"))
    work = [sum(one.flops for one in found.trace.operations) for found in (cut, whole)]
    assert work[0] == work[1] > 0


@pytest.mark.longer
def test_one_of_few_batches_keeps_what_these_give(tmp_path: Path) -> None:
    """Loaders that feed steps have more batches than there are data; these are evaluated once."""
    few, more = (traced(tmp_path, n, "kept.append(out)", at=1) for n in (3, 5))
    output = 8 * 32 * 4
    assert more.trace.peak_of_last_step() - few.trace.peak_of_last_step() == 2 * output


@pytest.mark.slow
def test_a_script_that_needs_every_batch_gets_them(tmp_path: Path) -> None:
    whole = traced(tmp_path, 20, then="assert seen == 20")
    cut = traced(tmp_path, 20)
    assert whole.values.operators > cut.values.operators
    assert whole.trace.peak_of_last_step() == cut.trace.peak_of_last_step()


@pytest.mark.longer
def test_micro_batches_are_no_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    head, _, _ = SCRIPT.partition("for step, (x,)")
    path.write_text(head.format(batches=1) + ACCUMULATES)
    trace = follow(Program.of(path, (), "--batch"), 4, A10, None).trace
    assert trace.micro_batches == 8


ACCUMULATES = """
model.eval()
for step, (x,) in enumerate(loader, 1):
    with torch.no_grad():
        target = model(x.cuda())
    (model(x.cuda()) - target).square().mean().backward()
    if step % 8 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
