"""The evaluation of a script: what it is followed to, compared with one that really runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.interface.result import PhaseName
from engine.interface.trial import Source, Trial
from engine.measurement import cpu
from engine.measurement.programs import run_program
from engine.measurement.protocol import TrialOrder
from engine.script.fork import Done, in_a_fork
from engine.script.program import Program
from engine.script.trace import follow_script
from engine.script.unlike_steps import STEPS
from engine.tests.test_script_phases import SCRIPT, WIDTH

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


@pytest.mark.parametrize(
    ("keeps", "samples"),
    [("pass", 256), ("kept.append(out)", 6_400)],
    ids=["of one batch", "of a hundred batches that are kept"],
)
def test_an_evaluation_takes_what_it_takes_on_real_tensors(
    tmp_path: Path, keeps: str, samples: int
) -> None:
    """Where a script really runs here, its loaders give 64 batches at the least."""
    path = tmp_path / "train.py"
    code = SCRIPT.format(width=WIDTH, eval_samples=samples, eval_batch=64, keeps=keeps, saves="")
    path.write_text(code.replace(".cuda()", "").replace("range(3)", "range(1)"))
    program = Program.of(path, (), "--batch")
    order = TrialOrder(program, 4)

    def run(done: Done[Trial]) -> None:
        torch.set_num_threads(1)  # threads of the tests before do not survive a fork
        run_program(order, _AfterTraining(order), done)

    predicted = follow_script(program, 4, None).peaks[PhaseName.EVALUATION].device
    assert predicted == in_a_fork(run).peak_allocated_bytes
