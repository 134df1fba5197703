"""A user's training code predicted for a catalogue GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import engine
from engine.cli.main import main
from engine.core.errors import DoesNotFit, InvalidInput
from engine.examples import my_training
from engine.gpus import GPUS
from engine.interface.result import AnalysisResult, OptimizerStep
from engine.interface.trial import Source
from engine.script.factory import Factory
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import A10, ACCUMULATING, BY_VALUE, EXAMPLE, linear, written
from engine.script.trace import CannotTrace, trace_script
from engine.script_analysis import analyze_script, plan_script, predict_script

NEEDS_BF16 = """
import torch
from torch import nn

def make_step(batch_size):
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ValueError("this needs bf16")
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch_size, 64, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step
"""


class TestPredicted:
    """Predicted for a catalogue GPU."""

    @pytest.fixture(scope="class")
    def result(self) -> AnalysisResult:
        return engine.analyze(my_training.make_step, gpu="t4", batch_multiple=256)

    def test_python_gets_the_same_kind_of_answer_as_for_a_model(
        self, result: AnalysisResult
    ) -> None:
        assert result.source is Source.PREDICTED
        assert result.next_batch_size_fails
        assert result.next_batch_size == result.largest_batch_size + 256
        assert result.recommended_batch_size <= (result.safe_batch_size or 0)
        assert result.recommended_batch_size % 256 == 0
        assert result.savings is not None
        assert result.curve
        assert any("Nothing was run" in caveat for caveat in result.caveats)
        json.dumps(result.to_dict())

    def test_the_answer_knows_the_optimizer_step(self, result: AnalysisResult) -> None:
        assert result.optimizer_step == OptimizerStep(["AdamW"], 1, 1, gpus=1)

    def test_code_that_cannot_be_predicted_gives_no_number(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        linear(folder, last=BY_VALUE)
        assert main(["analyze", "--factory", "mine:make_step", "--gpu", "a10", "--json"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "There is no prediction: measure it" in err.splitlines()[-1]

    @pytest.mark.slow
    def test_a_gpu_that_the_code_refuses_does_not_keep_others_out_of_a_plan(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        some = {name: GPUS[name] for name in ("t4", "a10")}
        monkeypatch.setattr("engine.script_analysis.known_gpus", lambda _: some)
        factory = written(folder, NEEDS_BF16)
        without = plan_script(ScriptRequest.parse(factory, {"gpu": "local"}), lambda _: None)
        on_a10 = plan_script(ScriptRequest.parse(factory, {"gpu": "a10"}), lambda _: None)
        for made in (without, on_a10):
            t4, a10 = made.options
            assert not t4.fits
            assert "this needs bf16" in t4.why_not
            assert a10.fits
        with pytest.raises(CannotTrace, match="this needs bf16"):
            plan_script(ScriptRequest.parse(factory, {"gpu": "t4"}), lambda _: None)

    @pytest.mark.slow
    def test_predicted_times_have_a_range(self) -> None:
        result = engine.analyze(EXAMPLE, gpu="t4", batch_multiple=512)
        trial = result.trials[0]
        assert trial.step_seconds is not None
        assert trial.step_seconds_low is not None
        assert trial.step_seconds_high is not None
        assert trial.step_seconds_low < trial.step_seconds < trial.step_seconds_high

    @pytest.mark.slow
    def test_the_certificate_repeats_both_sides(self, capsys: pytest.CaptureFixture[str]) -> None:
        options = "expandable_segments:True"
        asked = {"gpu": "t4", "memory_limit_bytes": 2**30, "allocator": options}
        result = engine.analyze(EXAMPLE, **asked)  # type: ignore[arg-type]  # of several types
        assert len(result.certificate) == 2
        for command, fits in zip(result.certificate, (True, False), strict=True):
            assert command.startswith("memorymark predict --factory ")
            assert main([*command.split()[1:], "--json"]) == 0
            again = json.loads(capsys.readouterr().out)
            trial = next(t for t in result.trials if t.batch_size == again["batch_size"])
            assert again["fits"] is trial.fits is fits
            assert again["peak_reserved_bytes"] == trial.peak_reserved_bytes

    @pytest.mark.slow
    def test_allocator_options_change_the_prediction(self) -> None:
        request = ScriptRequest(Factory.of(EXAMPLE), gpu="t4", current_batch_size=1000)
        plain, expandable = (
            predict_script(replace(request, allocator=options), lambda _: None).trials[0]
            for options in ("", "expandable_segments:True")
        )
        assert plain.peak_reserved_bytes != expandable.peak_reserved_bytes

    def test_code_that_fits_at_no_batch_is_refused(self, folder: Path) -> None:
        factory = linear(folder)
        with pytest.raises(DoesNotFit, match="mine:make_step does not fit on NVIDIA T4 limited"):
            engine.analyze(factory.name, gpu="t4", memory_limit_bytes=150 * 2**20)


class TestAnyGpu:
    """Without a GPU to begin with, the one that trains it at the lowest cost is chosen."""

    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        some = {name: GPUS[name] for name in ("t4", "a10", "l4")}
        monkeypatch.setattr("engine.prediction.plans.gpu_choice.known_gpus", lambda _: some)
        monkeypatch.setattr("engine.script_analysis.known_gpus", lambda _: some)

    @pytest.mark.longer
    def test_the_cheapest_that_surely_fits_is_chosen(self, folder: Path) -> None:
        factory = linear(folder)
        result = engine.analyze(factory.name, gpu="any", batch_multiple=1024)
        named = {offer.gpu: offer for offer in result.compared_gpus}
        assert set(named) == {"t4", "a10", "l4"}
        best = min(named.values(), key=lambda offer: offer.usd_per_million_samples or 0)
        alone = engine.analyze(factory.name, gpu=best.gpu, batch_multiple=1024)
        assert (result.gpu, result.trials) == (alone.gpu, alone.trials)
        assert best.recommended_batch_size == alone.recommended_batch_size
        assert result.decision.startswith("Train on ")
        assert ": cheapest that surely fits, " in result.decision
        assert result.caveats[0].startswith(f"{alone.gpu.name} is the cheapest that surely fits")
        assert all(f"--gpu {best.gpu} " in command for command in result.certificate)

    @pytest.mark.longer
    def test_one_that_the_code_refuses_is_not_chosen(self, folder: Path) -> None:
        factory = written(folder, NEEDS_BF16)
        result = engine.analyze(factory.name, gpu="any", batch_multiple=1024)
        assert {offer.gpu for offer in result.compared_gpus} == {"a10", "l4"}

    def test_code_that_every_gpu_refuses_says_why(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only = {"t4": GPUS["t4"]}
        monkeypatch.setattr("engine.script_analysis.known_gpus", lambda _: only)
        with pytest.raises(CannotTrace, match="this needs bf16"):
            engine.analyze(written(folder, NEEDS_BF16).name, gpu="any")

    @pytest.mark.longer
    def test_code_that_fits_on_none_says_where_it_nearly_does(self, folder: Path) -> None:
        kept = 'kept = torch.zeros(2**38, device="cuda")'
        code = NEEDS_BF16.replace("    def step():", f"    {kept}\n\n    def step(kept=kept):")
        with pytest.raises(DoesNotFit, match=r"make_step fits on no .+ The nearest is NVIDIA"):
            engine.analyze(written(folder, code).name, gpu="any")

    @pytest.mark.slow
    def test_a_lab_gets_the_analysis_of_the_chosen_gpu(self, folder: Path) -> None:
        request = ScriptRequest.parse(linear(folder), {"gpu": "any", "most_usd_per_hour": 5})
        result = analyze_script(request, lambda _: None)
        stored = request.for_lab(result)
        assert GPUS[stored.gpu].display_name == result.gpu.name
        assert stored.most_usd_per_hour is None

    @pytest.mark.slow
    def test_a_limit_that_none_keeps_is_refused(self, folder: Path) -> None:
        asked = {"gpu": "any", "most_usd_per_hour": 0.0001}
        with pytest.raises(InvalidInput, match="no GPU that fits costs so little"):
            analyze_script(ScriptRequest.parse(linear(folder), asked), lambda _: None)

    @pytest.mark.parametrize("given", [{"memory_limit_bytes": "1GiB"}, {"price_per_hour_usd": 1}])
    def test_what_is_about_one_gpu_is_refused(self, given: dict[str, object]) -> None:
        with pytest.raises(InvalidInput) as refused:
            ScriptRequest.parse(Factory.of(EXAMPLE), {"gpu": "any"} | given)
        assert refused.value.fields.keys() == given.keys()


class TestItsCaveats:
    """Answers state what cannot be known about code that is only seen from outside."""

    def caveats(self, factory: Factory) -> str:
        return " ".join(engine.analyze(factory.name, gpu="t4", batch_multiple=1024).caveats)

    @pytest.mark.slow
    def test_convolutions_have_a_caveat(self, folder: Path) -> None:
        assert "cuDNN's convolution workspaces" in self.caveats(Factory.of(EXAMPLE))
        assert "cuDNN" not in self.caveats(linear(folder))

    @pytest.mark.longer
    def test_parameters_and_optimizers_unknown_to_torch_have_a_caveat(self, folder: Path) -> None:
        code = """
import torch

def make_step(batch_size):
    weight = torch.randn(256, 256, requires_grad=True)
    def step():
        (torch.randn(batch_size, 256) @ weight).relu().sum().backward()
        with torch.no_grad():
            weight.sub_(weight.grad)
        weight.grad = None
    return step
"""
        told = self.caveats(written(folder, code, "bare"))
        assert "parameters and gradients cannot be told apart from inputs and activations" in told
        assert "No torch.optim.Optimizer took a step" in told
        assert "cannot be told apart" not in self.caveats(linear(folder, last=""))


class TestAccumulation:
    """A factory that takes the number of micro-batches can keep a global batch."""

    def asked(self, factory: Factory, **given: object) -> AnalysisResult:
        asked = {"gpu": "t4", "current_batch_size": 8, "global_batch_size": 64}
        return analyze_script(ScriptRequest.parse(factory, asked | given), lambda _: None)

    @pytest.mark.longer
    def test_the_global_batch_is_kept(self, folder: Path) -> None:
        result = self.asked(written(folder, ACCUMULATING.format(last="")))
        assert result.global_batch is not None
        kept = result.global_batch.gradient_accumulation * result.recommended_batch_size
        assert kept == result.global_batch.kept_size == 64
        current = next(trial for trial in result.trials if trial.batch_size == 8)
        assert current.step_seconds is not None
        assert current.samples_per_second == pytest.approx(64 / current.step_seconds)

    @pytest.mark.slow
    def test_gradients_stay_alive_between_micro_batches(self, folder: Path) -> None:
        factory = written(folder, ACCUMULATING.format(last=""))
        one, two, many = (
            trace_script(replace(factory, gradient_accumulation=count), 8, A10).peak_by_category()[
                1
            ]
            for count in (1, 2, 5)
        )
        assert two == many
        assert sum(one.values()) <= sum(two.values())

    def test_a_factory_that_cannot_accumulate_is_told_how(self, folder: Path) -> None:
        with pytest.raises(InvalidInput, match="has no argument gradient_accumulation; add one"):
            self.asked(linear(folder))

    @pytest.mark.slow
    def test_code_that_keeps_memory_of_each_micro_batch_is_not_predicted(
        self, folder: Path
    ) -> None:
        code = ACCUMULATING.format(last="kept.append(x)")
        with pytest.raises(CannotTrace, match=r"bytes with one more micro-batch"):
            self.asked(written(folder, code))

    @pytest.mark.slow
    def test_one_batch_is_predicted_with_its_micro_batches(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        written(folder, ACCUMULATING.format(last=""))
        given = "--factory mine:make_step --gpu t4 --batch-size 8 --gradient-accumulation 4"
        assert main(["predict", *given.split(), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["samples_per_second"] == pytest.approx(32 / found["step_seconds"])


class TestTheCommandLine:
    """``analyze --factory``."""

    @pytest.mark.longer
    def test_one_batch_size_is_predicted(self, capsys: pytest.CaptureFixture[str]) -> None:
        given = ["--factory", EXAMPLE, "--gpu", "t4", "--memory-limit", "2GiB"]
        assert main(["predict", *given, "--batch-size", "32"]) == 0
        out = capsys.readouterr().out
        assert f"{EXAMPLE} (script), on NVIDIA T4 limited" in out
        assert "Batch 32 fits (predicted)" in out

    def test_the_local_machine_is_measured_and_not_predicted(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["predict", "--factory", EXAMPLE, "--gpu", "local", "--batch-size", "1"]) == 2
        assert "--gpu: local is measured, not predicted" in capsys.readouterr().err

    @pytest.mark.longer
    def test_a_terminal_gets_tables(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert (
            main(["analyze", "--factory", EXAMPLE, "--gpu", "t4", "--batch-multiple", "512"]) == 0
        )
        out = capsys.readouterr().out
        assert f"{EXAMPLE} (script), on NVIDIA T4" in out
        assert "Largest batch" in out

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ("--factory mine", "--factory: 'mine' is not a function"),
            (f"bert --factory {EXAMPLE}", "model: the factory's code decides this"),
            (f"--factory {EXAMPLE} --precision fp32", "--precision: the factory's code"),
            (f"--factory {EXAMPLE} --sequence-length 9", "--sequence-length: the factory"),
            (f"--factory {EXAMPLE} --gpu b10", "--gpu: unknown gpu 'b10'"),
            (f"--factory {EXAMPLE} --current-batch-size 0", "--current-batch-size: enter a whole"),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(
        self, arguments: str, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["analyze", *arguments.split()]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"error: {says}")
        assert err.count("\n") == 1
