"""A script is followed past its traced steps: loading, evaluation and saving have peaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli.main import main
from engine.core.sizes import GIB
from engine.gpus import GPUS
from engine.interface.result import PhaseName
from engine.interface.trial import Source, Trial
from engine.prediction.memory.phases import judged_by
from engine.prediction.scripts.phases import NOT_FOLLOWED, ScriptPhases
from engine.script import whole_run
from engine.script.data import later_epochs
from engine.script.phase_peaks import Peak, WholeRun
from engine.script.program import Program
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import A10
from engine.script.trace import follow_script
from engine.script_analysis import analyze_script, predict_script

pytestmark = pytest.mark.torch

WIDTH = 256
SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = {width}
data = TensorDataset(torch.randn(64, WIDTH))
batch = int(sys.argv[2]) if len(sys.argv) > 1 else 4
loader = DataLoader(data, batch_size=batch)
held_out = DataLoader(TensorDataset(torch.randn({eval_samples}, WIDTH)), batch_size={eval_batch})
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
    kept = []
    with torch.no_grad():
        for (x,) in held_out:
            out = model(x.cuda())
            {keeps}
    {saves}
"""
SAVES = "torch.save(model.state_dict(), 'model.pt')"
WEIGHT = WIDTH * WIDTH * 4


def written(folder: Path, **changed: object) -> Program:
    given = {"width": WIDTH, "eval_samples": 64, "eval_batch": 8, "keeps": "pass", "saves": SAVES}
    path = folder / "train.py"
    path.write_text(SCRIPT.format(**(given | changed)))
    return Program.of(path, (), "--batch")


def followed(program: Program, batch_size: int = 4) -> WholeRun:
    return follow_script(program, batch_size, A10)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """The script as it is, followed."""
    return followed(written(tmp_path_factory.mktemp("run")))


class TestFollowed:
    def test_a_script_comes_to_its_evaluation_and_its_checkpoint(self, run: WholeRun) -> None:
        assert {*run.peaks} == {*PhaseName} - {PhaseName.GENERATION}
        assert run.left == ""
        assert run.batches == 8
        assert not run.grows
        weights = 2 * (WEIGHT + WIDTH * 4)
        assert run.peaks[PhaseName.SAVING].device >= weights
        assert run.saved is not None
        assert (run.saved.by, run.saved.file, run.saved.largest) == ("torch.save", 0, WEIGHT)

    def test_loading_ends_with_weights_and_a_batch_on_the_gpu(self, run: WholeRun) -> None:
        loading = run.peaks[PhaseName.LOADING]
        assert loading.device == 2 * (WEIGHT + WIDTH * 4) + 4 * WIDTH * 4
        assert loading.host >= WEIGHT

    @pytest.mark.longer
    def test_an_evaluation_is_as_large_as_its_own_batch(self, tmp_path: Path) -> None:
        large = followed(written(tmp_path, eval_samples=128, eval_batch=64))
        small = followed(written(tmp_path, eval_samples=16, eval_batch=8))
        more = large.peaks[PhaseName.EVALUATION].device - small.peaks[PhaseName.EVALUATION].device
        # Input, hidden layer and its ReLU, and the output of the batch before.
        assert more == 4 * (64 - 8) * WIDTH * 4
        step = large.peaks[PhaseName.STEP].device
        assert large.peaks[PhaseName.EVALUATION].device > step

    @pytest.mark.longer
    def test_what_each_batch_keeps_adds_up_to_the_last_one(self, tmp_path: Path) -> None:
        kept = {"keeps": "kept.append(out)", "eval_samples": 8 * 12}
        run = followed(written(tmp_path, **kept))
        without = followed(written(tmp_path, eval_samples=8 * 12))
        assert run.grows
        more = run.peaks[PhaseName.EVALUATION].device - without.peaks[PhaseName.EVALUATION].device
        assert more == pytest.approx(11 * 8 * WIDTH * 4, abs=8 * WIDTH * 4)

    def test_a_script_that_ends_without_either_says_nothing_else(self, tmp_path: Path) -> None:
        program = written(tmp_path)
        path = Path(program.path)
        path.write_text(path.read_text().partition("    kept = []")[0])
        run = followed(program)
        assert {*run.peaks} == {PhaseName.LOADING, PhaseName.STEP, PhaseName.LATER_STEP}
        assert run.left == ""

    def test_an_evaluation_that_fails_is_said(self, tmp_path: Path) -> None:
        run = followed(written(tmp_path, keeps="raise KeyError('metrics')"))
        assert "KeyError" in run.left
        assert PhaseName.SAVING not in run.peaks

    @pytest.mark.longer
    def test_a_loop_that_wants_data_without_end_is_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(later_epochs, "SECONDS", 0.2)
        program = written(tmp_path)
        path = Path(program.path)
        head, _, _ = path.read_text().partition("for epoch in range(3):")
        path.write_text(head + ENDLESS)
        assert followed(program).left == "its training loop wants data without end"

    @pytest.mark.longer
    def test_a_long_text_is_left_once_it_takes_no_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(whole_run, "QUIET_SECONDS", 0.2)
        text = "for _ in range(10**9): x = model(x.cuda())"
        run = followed(written(tmp_path, keeps=text))
        assert "whose forward passes take no more memory" in run.left
        assert PhaseName.EVALUATION in run.peaks


ENDLESS = """
batches = iter(loader)
while True:
    try:
        (x,) = next(batches)
    except StopIteration:
        batches = iter(loader)
        (x,) = next(batches)
    optimizer.zero_grad()
    model(x.cuda()).square().mean().backward()
    optimizer.step()
"""

CHANGES = {
    "os.remove(kept_file)": "removes or renames a file",
    "os.rename(kept_file, kept_file + '.old')": "removes or renames a file",
    "shutil.rmtree(os.path.dirname(kept_file))": "removes or renames a file",
    "os.system(f'rm {kept_file}')": "starts another program",
    "subprocess.run(['rm', kept_file])": "starts another program",
    "os.write(os.open(kept_file, os.O_WRONLY | os.O_TRUNC), b'')": "writes to a file",
    "sqlite3.connect(kept_file)": "opens a database",
}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=change.partition("(")[0], marks=() if fast else pytest.mark.slow)
        for change, same in zip(CHANGES, [None, *CHANGES.values()], strict=False)
        for fast in [CHANGES[change] != same]  # one of each kind
    ],
)
def test_nothing_that_lasts_is_changed_after_training(tmp_path: Path, change: str) -> None:
    kept = tmp_path / "kept" / "best.ckpt"
    kept.parent.mkdir()
    kept.write_text("of an earlier run")
    program = written(tmp_path, saves=change)
    path = Path(program.path)
    given = f"import os, shutil, sqlite3, subprocess\nkept_file = {str(kept)!r}\n"
    path.write_text(given + path.read_text())
    run = followed(program)
    assert kept.read_text() == "of an earlier run"
    assert CHANGES[change] in run.left
    assert PhaseName.EVALUATION in run.peaks


def run_of(batch_size: int, evaluation: int) -> WholeRun:
    peaks = {
        PhaseName.LOADING: Peak(10, 20),
        PhaseName.STEP: Peak(100, 5),
        PhaseName.EVALUATION: Peak(evaluation, 7),
    }
    return WholeRun(batch_size, peaks, batches=3)


class TestAtOtherBatchSizes:
    def test_an_evaluation_grows_as_it_does_from_one_batch_to_twice_that(self) -> None:
        phases = ScriptPhases(lambda size: run_of(size, 50 + 3 * size), 8)
        assert phases._peak(PhaseName.EVALUATION, 64) == Peak(50 + 3 * 64, 7)

    def test_one_that_takes_no_other_batch_stays_as_it_is(self) -> None:
        def follow(size: int) -> WholeRun:
            if size != 8:
                raise AssertionError
            return WholeRun(8, {PhaseName.LOADING: Peak(1, 1), PhaseName.STEP: Peak(2, 2)})

        assert ScriptPhases(follow, 8)._peak(PhaseName.LOADING, 64) == Peak(1, 1)

    def test_a_factory_says_that_it_was_not_followed(self) -> None:
        assert ScriptPhases(None, 8).caveats == [NOT_FOLLOWED]

    def test_a_phase_that_needs_more_than_the_gpu_has_decides(self) -> None:
        gpu = GPUS["a10"]
        trial = Trial(8, True, Source.PREDICTED, GIB, GIB, 2 * GIB)
        judged = judged_by(trial, 21 * GIB, "evaluation takes", gpu)
        assert not judged.fits
        assert judged.failure.startswith("out of memory: evaluation takes 23.00 GiB")
        assert judged_by(trial, 0, "evaluation takes", gpu) is trial


class TestAnswers:
    @pytest.mark.longer
    def test_the_evaluation_decides_where_it_needs_more(self, tmp_path: Path) -> None:
        huge = "model(x.cuda().repeat(2**20, 1))"  # 8 GiB for each layer
        program = written(tmp_path, keeps=huge)
        request = ScriptRequest.parse(program, {"gpu": "a10", "current_batch_size": 4})
        (trial,) = predict_script(request, lambda _: None).trials
        assert not trial.fits
        assert "evaluation takes" in trial.failure

    @pytest.mark.slow
    def test_an_analysis_names_its_phases(self, tmp_path: Path) -> None:
        program = written(tmp_path)
        request = ScriptRequest.parse(
            program, {"gpu": "a10", "current_batch_size": 4, "memory_limit_bytes": 400 * 2**20}
        )
        result = analyze_script(request, lambda _: None)
        assert [phase.name for phase in result.phases] == [
            PhaseName.LOADING, PhaseName.STEP, PhaseName.EVALUATION, PhaseName.SAVING,
        ]  # fmt: skip
        assert result.limiting_phase is PhaseName.STEP
        assert not any("evaluat" in caveat for caveat in result.caveats)

    @pytest.mark.slow
    def test_predict_prints_them(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        program = written(tmp_path)
        assert main(["predict", program.path, "--gpu", "a10", "--json"]) == 0
        phases = json.loads(capsys.readouterr().out)["phases"]
        assert [one["name"] for one in phases] == [
            "loading", "training step", "evaluation", "saving",
        ]  # fmt: skip
        assert phases[3]["how"].startswith("torch.save copies one tensor at a time")
