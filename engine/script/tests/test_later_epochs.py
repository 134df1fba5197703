"""Steps of later epochs: one of each is followed, and what it needs more decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.interface.result import PhaseName
from engine.prediction.scripts.phases import ScriptPhases
from engine.script.data.later_epochs import LaterEpochs
from engine.script.phase_peaks import Peak, WholeRun
from engine.script.program import Program
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import A10
from engine.script.trace import follow_script
from engine.script_analysis import predict_script
from engine.tests.shared import slow

pytestmark = pytest.mark.torch

WIDTH = 128
SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

W = 128
loader = DataLoader(TensorDataset(torch.randn(8, W)), batch_size=4)
if len(sys.argv) > 1:
    loader = DataLoader(loader.dataset, batch_size=int(sys.argv[2]))
first, last = nn.Linear(W, W).cuda(), nn.Linear(W, W).cuda()
model = nn.Sequential(first, nn.ReLU(), last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
kept = []
for epoch in range({epochs}):
    rows = 1
    {changes}
    for number, (x,) in enumerate(loader):
        {each}
        out = model(x.cuda().repeat(rows, 1))
        out.square().mean().backward()
        if number % {accumulates} == {accumulates} - 1:
            optimizer.step()
            optimizer.zero_grad()
    {after}
"""


PARTS = {"changes": "pass", "each": "pass", "accumulates": 1, "after": "", "epochs": 6}


def program(folder: Path, changes: str = "pass", **parts: str | int) -> Program:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(**PARTS | {"changes": changes} | parts))
    return Program.of(path, (), "--batch")


def more(run: WholeRun) -> int:
    """Bytes that a later step takes beyond the traced ones."""
    return run.peaks[PhaseName.LATER_STEP].device - run.peaks[PhaseName.STEP].device


@pytest.mark.longer
def test_inputs_that_grow_with_the_epoch_count_at_their_largest(tmp_path: Path) -> None:
    run = follow_script(program(tmp_path, "rows = 1 + 2 * epoch"), 8, A10)
    # At least input, hidden layer and output of eleven times the rows, of which one had been seen.
    assert more(run) >= 3 * 10 * 8 * WIDTH * 4


@pytest.mark.parametrize(
    "draw",
    [
        "random.randint(1, 11)",
        slow("random.randrange(1, 12)"),
        slow("random.choice([1, 11, 2])"),
        slow("numpy.random.randint(1, 12)"),
        "int(numpy.random.choice([1, 11, 2]))",
        slow("int(torch.randint(1, 12, (1,)))"),
        "torch.randint(high=12, low=1, size=(1,)).item()",
        slow("randint(1, 11)"),
    ],
)
def test_sizes_that_are_drawn_count_at_their_largest(tmp_path: Path, draw: str) -> None:
    """As detectors draw the size of the next batch; the traced steps draw small ones here."""
    changes = f"import random, numpy; from random import randint; rows = {draw} if epoch else 1"
    run = follow_script(program(tmp_path, changes), 8, A10)
    assert more(run) >= 3 * 10 * 8 * WIDTH * 4


def test_sizes_that_are_drawn_count_at_their_largest_in_a_single_epoch(tmp_path: Path) -> None:
    draws = "import random; rows = random.choice([1, 11 if number > 2 else 1])"
    run = follow_script(program(tmp_path, each=draws, epochs=1), 8, A10)
    assert more(run) >= 3 * 10 * 8 * WIDTH * 4


def test_a_single_epoch_that_draws_no_sizes_ends_with_the_traced_steps(tmp_path: Path) -> None:
    seeds = "import random; torch.manual_seed(random.randint(0, 9))"
    each = "random.random(); rows = 11 if number > 2 else 1"
    run = follow_script(program(tmp_path, seeds, each=each, epochs=1), 8, A10)
    assert more(run) <= 0


def test_a_line_that_draws_until_a_number_suits_goes_on(tmp_path: Path) -> None:
    changes = (
        "import random\n    while random.randint(0, 9) == 9: pass\n    random.choice(['a', 'b'])"
    )
    run = follow_script(program(tmp_path, changes), 8, A10)
    assert more(run) <= 0
    assert run.left == ""


@pytest.mark.parametrize("accumulates", [1, slow(4)])
def test_steps_that_stay_the_same_need_no_more(tmp_path: Path, accumulates: int) -> None:
    run = follow_script(program(tmp_path, accumulates=accumulates), 8, A10)
    assert more(run) <= 0
    assert run.left == ""


def test_a_layer_that_is_thawed_brings_its_gradient_and_momentum(tmp_path: Path) -> None:
    thaws = "first.requires_grad_(epoch >= 2)"
    run = follow_script(program(tmp_path, thaws), 4, A10)
    assert more(run) >= WIDTH * WIDTH * 4


def test_outputs_that_are_kept_between_epochs_count(tmp_path: Path) -> None:
    run = follow_script(program(tmp_path, after="kept.append(out.detach())"), 8, A10)
    assert more(run) >= 4 * 8 * WIDTH * 4


@pytest.mark.longer
def test_an_answer_names_the_later_step_and_counts_it(tmp_path: Path) -> None:
    grows = program(tmp_path, "rows = 2 ** 20 if epoch == 3 else 1")
    request = ScriptRequest.parse(grows, {"gpu": "a10", "current_batch_size": 64})
    result = predict_script(request, lambda _: None)
    (trial,) = result.trials
    assert not trial.fits
    assert "a later training step takes" in trial.failure
    assert any("Steps grow" in caveat for caveat in result.caveats)
    assert PhaseName.LATER_STEP in {phase.name for phase in result.phases}


@pytest.mark.slow
def test_one_that_needs_the_same_is_not_named(tmp_path: Path) -> None:
    request = ScriptRequest.parse(program(tmp_path), {"gpu": "a10", "current_batch_size": 64})
    result = predict_script(request, lambda _: None)
    assert PhaseName.LATER_STEP not in {phase.name for phase in result.phases}
    assert not any("Steps grow" in caveat for caveat in result.caveats)


def test_a_later_step_grows_as_it_does_from_one_batch_to_twice_that() -> None:
    def follow(size: int) -> WholeRun:
        peaks = {PhaseName.LOADING: Peak(1, 1), PhaseName.STEP: Peak(10 * size, 1)}
        return WholeRun(size, peaks | {PhaseName.LATER_STEP: Peak(5 + 30 * size, 1)})

    assert ScriptPhases(follow, 8)._peak(PhaseName.LATER_STEP, 64) == Peak(5 + 30 * 64, 1)


class _Epoch:
    """An iterator over the data that feeds steps."""


def test_the_epoch_of_the_traced_steps_is_no_later_one() -> None:
    later, first, second = LaterEpochs(), _Epoch(), _Epoch()
    later.reads_before(first)
    later.batches = 2
    assert not later.gives(first)
    assert [later.gives(second) for _ in range(3)] == [True, True, False]
    assert later.owes_step


LOOKS_AGAIN = """
    model.eval()
    with torch.no_grad():
        seen = 0
        for (x,) in loader:
            model(x.cuda().repeat(50, 1))
            seen += 1
        assert seen
    model.train()
"""


def test_training_data_are_evaluated_where_another_place_reads_them(tmp_path: Path) -> None:
    run = follow_script(program(tmp_path, after=LOOKS_AGAIN), 8, A10)
    # Fifty times the input, and two outputs of it.
    assert run.peaks[PhaseName.EVALUATION].device >= 3 * 50 * 8 * WIDTH * 4
    assert run.batches == 1
    assert more(run) <= 0
    assert run.left == ""


PROBES = """
    model.eval()
    first.requires_grad_(False)
    probe = nn.Linear(W, 100 * W).cuda()
    tuner = torch.optim.SGD(probe.parameters(), lr=0.1)
    others = DataLoader(TensorDataset(torch.randn(64, W)), batch_size=4)
    for (x,) in others:
        probe(model(x.cuda())).square().mean().backward()
        tuner.step()
"""


@pytest.mark.longer
def test_a_second_stage_of_training_is_no_evaluation(tmp_path: Path) -> None:
    run = follow_script(program(tmp_path, after=PROBES), 8, A10)
    assert PhaseName.EVALUATION not in run.peaks
    assert more(run) >= 2 * 100 * WIDTH * WIDTH * 4


COUNTS = """
    with torch.no_grad():
        wanted, read = len(others), 0
        while read < wanted:
            for (x,) in others:
                model(x.cuda())
                read += 1
    assert read == 4
"""


@pytest.mark.longer
def test_code_that_counts_batches_does_not_wait_for_those_that_are_cut(tmp_path: Path) -> None:
    made = "others = DataLoader(TensorDataset(torch.randn(400, W)), batch_size=4)"
    run = follow_script(program(tmp_path, made, after=COUNTS), 8, A10)
    assert (run.batches, run.left) == (100, "")
