"""A file of recorded training runs tells the launch time of the machine in which they ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine
from engine.cli.main import main
from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.batch_trials import BatchTrials
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult, MeasuredOn
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.prediction.measured_host import on_told_host
from engine.prediction.one_batch import predict_batch
from engine.prediction.plans.plan import plan
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.scripts.step_time import on_recorded_host
from engine.prediction.timing.correction import UNCORRECTED, Experience
from engine.recording import TrainingRecord, to_file
from engine.recording.tests.test_training_record import RECORD
from engine.records.comparison import RecordedFile
from engine.records.reading import read_recorded, recorded_for
from engine.script.factory import Factory
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import ACCUMULATING, EXAMPLE, written
from engine.script_analysis import analyze_script, plan_script, predict_script
from engine.tests.shared import slow, small_workload

LAUNCHING = 43e-6
ON_AN_A10 = "it trained on NVIDIA A10, not NVIDIA H100 SXM5 80GB"
MEASURED_ON = MeasuredOn("NVIDIA H100 80GB HBM3", "2.13.0", "5.23.0", 4)
small = pytest.mark.usefixtures("small_models", "kept_traces")


def run(batch_size: int, step_seconds: float, **changes: Any) -> TrainingRecord:
    """A training run on an H100."""
    times = dict.fromkeys(("step_seconds", "step_seconds_low", "step_seconds_high"), step_seconds)
    on = {"device_name": "NVIDIA H100 80GB HBM3", "gradient_accumulation": 1}
    return replace(RECORD, batch_size=batch_size, **{**times, **on, **changes})


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., RecordedFile]:
    """Writes training runs as a recorder does, and reads them back."""

    def file(*runs: TrainingRecord) -> RecordedFile:
        path = tmp_path / "runs.jsonl"
        for one in runs:
            to_file(path)(one)
        return read_recorded(path)

    return file


def asked(batch_size: int = 2, **changes: Any) -> AnalysisRequest:
    workload = small_workload("bert")
    return AnalysisRequest(workload=workload, gpu="h100", current_batch_size=batch_size, **changes)


def step_seconds(request: AnalysisRequest, launching: float = LAUNCHING) -> float:
    """Time of a step of the request on a host that takes so long for a launch."""
    launched = replace(request, launch_microseconds=1e6 * launching)
    trial = predict_batch(launched, lambda _: None).trial
    assert trial.step_seconds
    return trial.step_seconds


def answered(request: AnalysisRequest, file: RecordedFile | None = None) -> AnalysisResult:
    return analyze_predicted(request, lambda _: None, experience=Experience(recorded=file))


def measured_json(workload: Workload, batch_size: int, seconds: float) -> str:
    """Output of ``memorymark measure --json``."""
    trial = Trial(batch_size, fits=True, source=Source.MEASURED, step_seconds=seconds)
    plain = asdict(trial) | {"tokens_per_second": 1.0, "workload": workload.to_dict()}
    return json.dumps(plain | {"measured_on": asdict(MEASURED_ON)}, indent=2)


class TestReading:
    """Contents of a file."""

    def test_a_recorders_lines_are_read_the_last_one_first(
        self, recorded: Callable[..., RecordedFile]
    ) -> None:
        file = recorded(run(2, 0.02), run(4, 0.03, precision="fp32", model_name="bert"))
        assert file.name == "runs.jsonl"
        assert [step.batch_size for step in file.steps] == [4, 2]
        last = file.steps[0]
        assert (last.step_seconds, last.precision, last.model_name) == (0.03, "fp32", "bert")

    def test_what_measure_prints_is_read_too(self, tmp_path: Path) -> None:
        path, workload = tmp_path / "measured.json", small_workload("bert")
        path.write_text(2 * measured_json(workload, 2, 0.02))
        step = read_recorded(path).steps[1]
        assert (step.batch_size, step.step_seconds, step.workload) == (2, 0.02, workload)
        assert step.device_name == "NVIDIA H100 80GB HBM3"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "it.jsonl has no record in it"),
            ("batch 16", "it.jsonl is not JSON where an object begins in line 1"),
            ("[]", "not a JSON object"),
            ('{"batch_size": 16}', "it.jsonl, record 1: "),
            (json.dumps(RECORD.to_dict()) + "\n{", "in line 2"),
            ('{"measured_on": null, "batch_size": 1, "fits": true, "source": "measured"}', "again"),
        ],
    )
    def test_anything_else_is_refused_in_one_line(
        self, text: str, message: str, tmp_path: Path
    ) -> None:
        (tmp_path / "it.jsonl").write_text(text)
        with pytest.raises(InvalidInput) as refusal:
            read_recorded(tmp_path / "it.jsonl")
        assert message in refusal.value.fields["recorded"]

    def test_it_contradicts_a_launch_time_and_needs_the_gpu(self, tmp_path: Path) -> None:
        assert recorded_for(asked(launch_microseconds=20.0), None) is None
        for request in (asked(launch_microseconds=20.0), replace(asked(), gpu="local")):
            with pytest.raises(InvalidInput, match="recorded"):
                recorded_for(request, tmp_path / "none.jsonl")


@cache
def unrecorded() -> AnalysisResult:
    """The answer without a recorded run."""
    return answered(asked())


@small
class TestModels:
    """The host of a model that the engine knows."""

    @pytest.mark.longer
    def test_other_batches_are_predicted_with_the_host_of_the_run(
        self, recorded: Callable[..., RecordedFile]
    ) -> None:
        request = asked()
        found = answered(request, recorded(run(2, step_seconds(request), model_name="bert")))
        known = answered(replace(request, launch_microseconds=1e6 * LAUNCHING))
        assert found.speedup == pytest.approx(known.speedup, rel=1e-2)
        told = (
            "Its host takes 43 µs to launch an operation, by what was measured of this workload at "
            "batch 2, recorded in runs.jsonl."
        )
        assert told in found.caveats
        assert not any("depends on the machine's CPU" in caveat for caveat in found.caveats)

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            (
                {"device_name": "NVIDIA A10"},
                "it trained on NVIDIA A10, not NVIDIA H100 SXM5 80GB (batch 2)",
            ),
            ({"world_size": 2}, "it trained on 2 devices, not 1 (batch 2)"),
            ({"precision": "bf16-mixed"}, "it trained in bf16-mixed, not fp32 (batch 2)"),
            ({"model_name": "openai-community/gpt2"}, "it trained openai-community/gpt2, not BERT"),
            ({"model_name": "gpt2"}, "it trained gpt2, not BERT base (batch 2)"),
            ({"gradient_accumulation": 4}, "it accumulated 4 micro-batches, not 1 (batch 2)"),
            ({"step_seconds": 100.0}, "waits for something else, such as its data (batch 2)"),
            ({"step_seconds": 1e-6}, "the GPU decides how long its step takes (batch 2)"),
        ],
    )
    def test_a_run_that_tells_nothing_changes_nothing_and_the_answer_says_why(
        self, changes: dict[str, Any], reason: str, recorded: Callable[..., RecordedFile]
    ) -> None:
        request = asked()
        seconds = changes.pop("step_seconds", None) or step_seconds(request)
        found = answered(request, recorded(run(2, seconds, **changes)))
        (why,) = (caveat for caveat in found.caveats if "runs.jsonl" in caveat)
        assert why.startswith("runs.jsonl does not tell the launch time: ")
        assert reason in why
        others = [caveat for caveat in found.caveats if caveat != why]
        assert replace(found, caveats=others) == unrecorded()

    @pytest.mark.parametrize("name", ["", "bert", "bert-base-uncased", "my-model"])
    def test_a_name_that_says_no_other_model_is_taken_at_the_users_word(
        self, name: str, recorded: Callable[..., RecordedFile]
    ) -> None:
        request = asked()
        found = answered(request, recorded(run(2, step_seconds(request), model_name=name)))
        assert any("43 µs" in caveat for caveat in found.caveats)

    @pytest.mark.slow
    def test_a_measured_trial_tells_it_for_its_own_workload_only(self, tmp_path: Path) -> None:
        request, path = asked(), tmp_path / "measured.json"
        path.write_text(measured_json(request.workload, 2, step_seconds(request)))
        found = answered(request, read_recorded(path))
        assert any("43 µs" in caveat for caveat in found.caveats)
        other = replace(request, workload=replace(request.workload, gradient_checkpointing=True))
        caveats = answered(other, read_recorded(path)).caveats
        why = "measured.json does not tell the launch time: it measured another workload (batch 2)."
        assert why in caveats

    @pytest.mark.slow
    def test_a_plan_compares_with_the_machine_of_the_run(
        self, recorded: Callable[..., RecordedFile]
    ) -> None:
        request = asked()
        file = recorded(run(2, step_seconds(request)))
        made = plan(request, lambda _: None, Experience(recorded=file))
        assert any("43 µs" in caveat for caveat in made.caveats)

    @pytest.mark.longer
    def test_the_command_names_the_launch_time_and_its_file(
        self,
        tmp_path: Path,
        recorded: Callable[..., RecordedFile],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        request = AnalysisRequest.parse({"model": "bert", "gpu": "h100", "current_batch_size": 2})
        recorded(run(2, step_seconds(request)))
        command = ["predict", "bert", "--gpu", "h100", "--batch-size", "4", "--json"]
        command += ["--recorded", str(tmp_path / "runs.jsonl")]
        assert main(command) == 0
        trial = json.loads(capsys.readouterr().out)
        assert trial["step_seconds"] == pytest.approx(
            step_seconds(replace(request, current_batch_size=4)), rel=1e-2
        )
        told = " ".join(trial["caveats"])
        assert "43 µs to launch an operation" in told
        assert "recorded in runs.jsonl" in told
        assert main([*command, "--launch-microseconds", "20"]) == 2
        assert "--recorded: launch_microseconds is given too" in capsys.readouterr().err


def test_a_launch_time_that_was_set_counts_more() -> None:
    known = replace(GPUS["h100"], launch_seconds=20e-6)
    named = replace(UNCORRECTED, recorded="runs.jsonl")
    gpu, found = on_told_host(known, named, lambda _: 1, lambda _: pytest.fail("not needed"))
    assert gpu == known
    (why,) = found.host_caveats()
    assert why == "runs.jsonl does not tell the launch time: it was set."


SCRIPT = ScriptRequest(Factory.of(EXAMPLE), gpu="h100", current_batch_size=64)


@cache
def unrecorded_script() -> BatchTrials:
    """The same for a script."""
    return predict_script(SCRIPT, lambda _: None)


class TestScripts:
    """The host of a user's own code."""

    REQUEST = SCRIPT

    def seconds(self, batch_size: int) -> float:
        there = replace(self.REQUEST, launch_microseconds=1e6 * LAUNCHING)
        (trial,) = predict_script(there, lambda _: None, [batch_size]).trials
        assert trial.step_seconds
        return trial.step_seconds

    @pytest.mark.slow
    def test_every_answer_is_for_the_host_of_the_run(
        self, recorded: Callable[..., RecordedFile]
    ) -> None:
        """Held against the work of the script at the batch of the run, which is not the asked."""
        file = recorded(run(16, self.seconds(16)))
        told = (
            "Its host takes 43 µs to launch an operation, by what was measured of this workload at "
            "batch 16, recorded in runs.jsonl."
        )
        predicted = predict_script(self.REQUEST, lambda _: None, recorded=file)
        assert told in predicted.caveats
        assert predicted.trials[0].step_seconds == pytest.approx(self.seconds(64), rel=1e-2)
        assert told in analyze_script(self.REQUEST, lambda _: None, file).caveats
        made = plan_script(self.REQUEST, lambda _: None, file)
        assert told in made.caveats

    @pytest.mark.longer
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            (
                {"device_name": "NVIDIA A10"},
                "it trained on NVIDIA A10, not NVIDIA H100 SXM5 80GB (batch 16)",
            ),
            slow({"gradient_accumulation": 2}, "it accumulated 2 micro-batches, not 1 (batch 16)"),
            slow({"world_size": 8}, "it trained on 8 devices, not 1 (batch 16)"),
        ],
    )
    def test_a_run_of_something_else_does_not_count(
        self, changes: dict[str, Any], reason: str, recorded: Callable[..., RecordedFile]
    ) -> None:
        file = recorded(run(16, 0.004, **changes))
        found = predict_script(self.REQUEST, lambda _: None, recorded=file)
        assert f"runs.jsonl does not tell the launch time: {reason}." in found.caveats
        assert found.trials == unrecorded_script().trials

    @pytest.mark.longer
    def test_a_batch_that_the_script_does_not_take_is_left_out(
        self, recorded: Callable[..., RecordedFile]
    ) -> None:
        from engine.script.batch_sizes import trace_request
        from engine.tracing.lowering import behaviour_of

        traces = trace_request(self.REQUEST, behaviour_of(GPUS["h100"]), lambda _: None)
        rule = SimpleNamespace(at=lambda size: replace(traces.at(size), batch_multiple=2))
        file = recorded(run(15, 0.004))
        _, host = on_recorded_host(self.REQUEST, GPUS["h100"], rule, file)
        assert host.host_caveats() == [
            "runs.jsonl does not tell the launch time: the script takes multiples of 2 (batch 15)."
        ]

    @pytest.mark.slow
    def test_a_factory_accumulates_as_the_run_did(
        self, folder: Path, recorded: Callable[..., RecordedFile]
    ) -> None:
        factory = written(folder, ACCUMULATING.format(last="pass"))
        given = {"gpu": "h100", "current_batch_size": 2, "gradient_accumulation": 2}
        request = ScriptRequest.parse(factory, given)
        there = replace(request, launch_microseconds=1e6 * LAUNCHING)
        (trial,) = predict_script(there, lambda _: None).trials
        assert trial.step_seconds
        file = recorded(run(2, trial.step_seconds, gradient_accumulation=2))
        found = predict_script(request, lambda _: None, recorded=file)
        assert any("43 µs" in caveat for caveat in found.caveats)

    @pytest.mark.slow
    def test_python_takes_the_file_too(
        self, tmp_path: Path, recorded: Callable[..., RecordedFile]
    ) -> None:
        recorded(run(16, self.seconds(16)))
        path = tmp_path / "runs.jsonl"
        found = engine.predict(EXAMPLE, gpu="h100", batch_sizes=[64], recorded=path)
        assert any("43 µs" in caveat for caveat in found.caveats)
        result = engine.analyze(EXAMPLE, gpu="h100", recorded=str(path))
        assert any("43 µs" in caveat for caveat in result.caveats)
        with pytest.raises(InvalidInput, match="choose that as gpu, not local"):
            engine.analyze(EXAMPLE, recorded=path)
