"""The analysis of the local device, measured on the CPU with a memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

import pytest
import torch

from engine.analysis import analyze
from engine.core.errors import DoesNotFit, InvalidInput
from engine.events import Event, Log
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.measurement import cpu, environment, rounds, trials
from engine.measurement import measured_analysis as measured
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.tests.shared import make_models_small
from engine.traces.tracer import trace

CPU = DeviceFacts("cpu", "CPU (test)", 2**36, 0, 0.0)
ASKED: dict[str, object] = {
    "model": "bert",
    "gpu": "local",
    "sequence_length": 32,
    "current_batch_size": 2,
}

pytestmark = pytest.mark.usefixtures("in_this_process", "kept_traces")


@dataclass(frozen=True)
class Certified:
    """An answer where 9 is the largest batch, and how it came about."""

    result: AnalysisResult
    events: list[Event]
    tried: list[int]


@pytest.fixture(scope="module")
def certified() -> Iterator[Certified]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        tried = run_in_this_process(monkeypatch)
        events: list[Event] = []
        request = AnalysisRequest.parse(ASKED | {"memory_limit_bytes": needed(9)})
        yield Certified(analyze(request, events.append), events, tried)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return run_in_this_process(monkeypatch)


def run_in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run trials in this process, with small models; returns the batch sizes tried."""
    make_models_small(monkeypatch)
    tried: list[int] = []

    def measure(order: TrialOrder) -> Trial:
        tried.append(order.batch_size)
        return timed(cpu.run_trial(order))

    monkeypatch.setattr(trials, "measure", measure)
    monkeypatch.setattr(trials, "record", cpu.record)
    monkeypatch.setattr(trials, "measured_on", environment.measured_on)
    monkeypatch.setattr(measured, "local_device", lambda: CPU)
    monkeypatch.setattr(rounds, "ENOUGH_SECONDS", 0.0)  # the fewest rounds
    return tried


def timed(trial: Trial) -> Trial:
    """With a step of 10 ms and 1 ms a sample, however busy this machine is."""
    if not trial.fits:
        return trial
    seconds = 0.01 + 0.001 * trial.batch_size
    return replace(trial, step_seconds=seconds, samples_per_second=trial.batch_size / seconds)


@cache
def needed(batch_size: int) -> int:
    return trace(Workload("bert", sequence_length=32), batch_size, None).peak_by_category()[0]


def answer(**fields: object) -> AnalysisResult:
    return analyze(AnalysisRequest.parse(ASKED | fields), lambda _: None)


def test_the_answer_is_certified_by_trials_on_both_sides(certified: Certified) -> None:
    result, tried = certified.result, certified.tried
    assert result.source is Source.MEASURED
    assert (result.largest_batch_size, result.next_batch_size) == (9, 10)
    assert result.next_batch_size_fails
    fits = {trial.batch_size: trial.fits for trial in result.trials}
    assert fits[9]
    assert not fits[10]
    assert all(trial.source is Source.MEASURED for trial in result.trials)
    # The prediction is exact, so: the current batch, the two certificates, the recommendation.
    recommended = result.recommended_batch_size
    assert tried[:3] == [2, 9, 10]
    in_turn = tried[3:] if recommended == 9 else tried[4:]
    assert in_turn == [2, recommended, recommended, 2, 2, recommended]
    assert result.largest_headroom_bytes == 0
    assert result.current_headroom_bytes == needed(9) - needed(2)


@pytest.mark.slow
def test_without_a_current_batch_nothing_is_measured_in_turn(in_this_process: list[int]) -> None:
    result = answer(current_batch_size=None, memory_limit_bytes=needed(9))
    recommended = result.recommended_batch_size
    assert (result.largest_batch_size, result.current_batch_size) == (9, None)
    assert (result.speedup, result.savings, result.comparison) == (None, None, None)
    assert result.decision.startswith(f"Start with batch {recommended}: ")
    assert sorted(in_this_process) == sorted({2, 9, 10, recommended})  # each once
    assert result.timeline


@pytest.mark.slow
def test_trials_from_an_earlier_attempt_are_not_repeated(
    certified: Certified, in_this_process: list[int]
) -> None:
    request = AnalysisRequest.parse(ASKED | {"memory_limit_bytes": needed(9)})
    first = certified.result
    told: list[Event] = []
    again = analyze(request, told.append, first.trials)

    assert again.largest_batch_size == first.largest_batch_size
    assert again.trials[:3] == first.trials[:3]
    assert not [event for event in told if isinstance(event, Trial)]
    assert set(in_this_process) <= {2, again.recommended_batch_size}  # only the rounds


def test_the_speedup_and_its_interval_come_from_the_rounds(certified: Certified) -> None:
    result = certified.result
    assert result.comparison is not None
    slow = result.comparison.current_samples_per_second
    fast = result.comparison.recommended_samples_per_second
    assert result.speedup == median(fast) / median(slow)
    ratios = [one / other for one, other in zip(fast, slow, strict=True)]
    assert (result.speedup_low, result.speedup_high) == (min(ratios), max(ratios))
    assert ("\N{MULTIPLICATION SIGN} faster" in result.verdict) == (min(ratios) > 1)


@pytest.mark.longer
def test_a_recommended_current_batch_is_not_compared_with_itself(
    in_this_process: list[int],
) -> None:
    result = answer(memory_limit_bytes=needed(1), current_batch_size=1)
    assert result.comparison is None
    assert result.speedup == 1
    assert len(in_this_process) == 2


def test_the_answer_says_what_it_was_measured_on(certified: Certified) -> None:
    found = certified.result.measured_on
    assert found is not None
    assert found.device == "cpu"
    assert found.cpu_threads == torch.get_num_threads()


@pytest.mark.slow
def test_only_multiples_are_measured_besides_the_current_batch() -> None:
    result = answer(memory_limit_bytes=needed(13), batch_multiple=4)
    assert (result.largest_batch_size, result.next_batch_size) == (12, 16)
    assert {trial.batch_size % 4 for trial in result.trials if trial.batch_size != 2} == {0}


@pytest.mark.longer
def test_a_current_batch_that_does_not_fit_has_no_speedup() -> None:
    result = answer(memory_limit_bytes=needed(9), current_batch_size=64)
    assert result.speedup is None
    assert result.savings is None
    assert result.current_headroom_bytes is None
    assert "64 runs out of memory" in result.verdict


def test_trials_and_log_lines_are_reported_as_they_come(certified: Certified) -> None:
    trials = [event for event in certified.events if isinstance(event, Trial)]
    assert trials == certified.result.trials
    said = [event.message for event in certified.events if isinstance(event, Log)]
    assert any("batch 9 fits" in line and "(measured)" in line for line in said)


@pytest.mark.longer
def test_memory_over_a_step_matches_the_recommended_batch_to_the_byte(
    certified: Certified,
) -> None:
    result = certified.result
    peak = max(sum(point.bytes.values()) for point in result.timeline)
    assert peak == needed(result.recommended_batch_size)
    assert {tensor.module.partition(".")[0] for tensor in result.largest_tensors} == {"bert"}


def test_allocator_options_without_that_allocator_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no CUDA caching allocator"):
        answer(memory_limit_bytes=needed(9), allocator="expandable_segments:True")


def test_on_the_cpu_a_memory_limit_is_needed() -> None:
    with pytest.raises(InvalidInput, match="no GPU; set a limit"):
        answer()


def test_a_memory_limit_above_the_devices_memory_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"has 64\.00 GiB; set no more"):
        answer(memory_limit_bytes=2**37)


def test_a_workload_that_does_not_fit_is_refused_before_anything_runs(
    in_this_process: list[int],
) -> None:
    with pytest.raises(DoesNotFit, match="a larger memory limit"):
        answer(memory_limit_bytes=2**20)
    assert in_this_process == [1]


@pytest.mark.slow
def test_without_a_known_price_only_hours_are_counted(certified: Certified) -> None:
    result = certified.result
    assert result.savings is not None
    assert result.savings.usd_per_year == 0
    assert any("price of this device is not known" in caveat for caveat in result.caveats)
    priced = answer(memory_limit_bytes=needed(9), price_per_hour_usd=2)
    assert priced.savings is not None
    assert priced.savings.current_usd_per_run == 16


@pytest.mark.slow
def test_measured_steps_stand_beside_their_prediction_where_the_gpu_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fitting(order: TrialOrder) -> Trial:
        seconds = 0.01 + 0.001 * order.batch_size
        fits, speed = order.batch_size <= 4, order.batch_size / seconds
        return Trial(
            order.batch_size,
            fits,
            Source.MEASURED,
            step_seconds=seconds if fits else None,
            samples_per_second=speed if fits else None,
        )

    a10 = DeviceFacts("cuda", "NVIDIA A10", 24 * 2**30, 2**29, 8.6)
    monkeypatch.setattr(measured, "local_device", lambda: a10)
    monkeypatch.setattr(trials, "measure", fitting)
    found = {trial.batch_size: trial for trial in answer().trials}
    # What small steps take depends on the host, so they say nothing of the GPU
    assert {trial.operations_seconds for trial in found.values()} == {None}

    monkeypatch.setattr("engine.prediction.probe.host_decides", lambda _: False)
    found = {trial.batch_size: trial for trial in answer().trials}
    assert found[5].operations_seconds is None  # it does not run
    request = AnalysisRequest.parse(ASKED | {"gpu": "a10", "current_batch_size": 4})
    predicted = {trial.batch_size: trial for trial in analyze(request, lambda _: None).trials}
    assert found[4].operations_seconds == predicted[4].operations_seconds is not None


def test_nothing_is_predicted_of_steps_on_a_cpu(certified: Certified) -> None:
    assert {trial.operations_seconds for trial in certified.result.trials} == {None}


@pytest.mark.longer
def test_where_nothing_can_be_predicted_trials_find_the_limit_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, in_this_process: list[int]
) -> None:
    limit = needed(20)

    def fail(*_: object) -> object:
        def predict(batch_size: int) -> Trial:
            raise AttributeError("'CythonDotParallel' object has no attribute '__name__'")

        return predict

    monkeypatch.setattr(measured, "memory_predictor", fail)
    result = answer(current_batch_size=None, memory_limit_bytes=limit)
    assert result.largest_batch_size == 20
    assert result.next_batch_size_fails
    assert result.caveats[0].startswith("The prediction failed on this machine (AttributeError: ")
    assert not any("is predicted" in caveat for caveat in result.caveats)
    assert len(set(in_this_process)) <= 7
