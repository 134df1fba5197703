"""The evaluation of a script: what it is followed to, compared with one that really runs."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
import torch

from engine.interface.result import PhaseName
from engine.interface.trial import Source, Trial
from engine.measurement import cpu
from engine.measurement.programs import run_program
from engine.measurement.protocol import TrialOrder
from engine.prediction.tests.test_script_phases import SCRIPT, WIDTH
from engine.script import whole_run
from engine.script.process.fork import Done, in_a_fork
from engine.script.process.unlike_steps import STEPS
from engine.script.program import Program
from engine.script.tests.scripts import real
from engine.script.trace import follow, follow_script
from engine.tests.shared import slow

pytestmark = pytest.mark.torch


class _AfterTraining(cpu.ProgramWatch):
    """Watches a program to its end, and remembers its peak after the first steps."""

    def step_ended(self, number: int) -> bool:
        if number <= STEPS:
            self._recorder.end_step()
            self._recorder.begin_step()
            self._recorder.peaks_since()
        return False

    def trial(self) -> Trial:
        peak, _ = self._recorder.peaks_since()
        return Trial(4, fits=True, source=Source.MEASURED, peak_allocated_bytes=peak)


KEEPS, JOINS = "kept.append(out)", "whole = torch.cat(kept)"


@pytest.mark.longer
@pytest.mark.parametrize(
    ("samples", "keeps", "then"),
    [
        (48, KEEPS, ""),
        slow(70, "pass", ""),
        (70, KEEPS, JOINS),
        slow(480, KEEPS, ""),
        slow(48, "pass", ""),
        slow(48, KEEPS, JOINS),
        slow(70, KEEPS, ""),
        slow(480, "pass", ""),
        slow(480, KEEPS, JOINS),
    ],
)
def test_an_evaluation_takes_what_it_takes_on_real_tensors(
    tmp_path: Path, keeps: str, then: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_run, "GROWING_SECONDS", inf)
    path = tmp_path / "train.py"
    code = SCRIPT.format(width=WIDTH, eval_samples=samples, eval_batch=16, keeps=keeps, saves=then)
    path.write_text(code.replace(".cuda()", "").replace("range(3)", "range(1)"))
    program = Program.of(path, (), "--batch")
    order = TrialOrder(program, 4)

    def run(done: Done[Trial]) -> None:
        torch.set_num_threads(1)  # threads of the tests before do not survive a fork
        run_program(order, _AfterTraining(order), done)

    predicted = follow_script(program, 4, None).peaks[PhaseName.EVALUATION].device
    assert predicted == in_a_fork(run).peak_allocated_bytes


EARLY = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch = int(sys.argv[2]) if len(sys.argv) > 1 else 4
loader = DataLoader(TensorDataset(torch.randn(64, 32)), batch_size=batch)
data = TensorDataset(torch.randn({samples}, 32))
held_out = DataLoader(data, batch_size=8{options})
other = DataLoader(data, batch_size=8{options})
model = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.no_grad()
def evaluate():
    logits = []
    {loop}
    return torch.cat(logits).mean()

for step, (x,) in enumerate(loader):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if step % 2 == {at}:
        evaluate()
"""
OVER_ONE = "for (x,) in held_out: logits.append(model(x))"
OVER_TWO = "for (x,), (y,) in zip(held_out, other): logits.append(model(x) + model(y))"
COUNTED = (
    "read = iter(held_out)\n    for _ in range(len(held_out)): logits.append(model(*next(read)))"
)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("loop", "samples", "at", "options"),
    [
        (OVER_ONE, 24, 0, ""),
        (OVER_TWO, 100, 1, ""),
        slow(COUNTED, 100, 0, ", drop_last=True"),
        slow(OVER_ONE, 160, 0, ", shuffle=True"),
        slow(OVER_TWO, 24, 0, ""),
        slow(COUNTED, 24, 0, ""),
        slow(OVER_ONE, 100, 1, ""),
        slow(COUNTED, 100, 1, ""),
        slow(OVER_ONE, 100, 0, ", drop_last=True"),
        slow(OVER_TWO, 100, 0, ", drop_last=True"),
        slow(OVER_TWO, 160, 0, ", shuffle=True"),
        slow(COUNTED, 160, 0, ", shuffle=True"),
    ],
)
def test_outputs_that_are_kept_between_the_first_steps_count_as_often_as_measured(
    tmp_path: Path, loop: str, samples: int, at: int, options: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(EARLY.format(loop=loop, samples=samples, at=at, options=options))
    program = Program.of(path, (), "--batch")
    measured = real(program, 4).peak_allocated_bytes
    peak, _ = follow(program, 4, None, None).trace.peak_by_category()
    assert peak == measured
    batches = samples // 8 if "drop_last" in options else -(-samples // 8)
    assert peak > 2 * batches * 8 * 32 * 4  # what is kept, and all of it at once
