"""A measured step that waits for its host tells how fast that host is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.choices import Precision
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.prediction.measured_host import HOST_SHARE, SLOWEST, launch_seconds
from engine.prediction.one_batch import predict_batch
from engine.prediction.plans.plan import plan
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.tests.test_step_time import product, work
from engine.prediction.timing.correction import Experience
from engine.prediction.timing.intervals import Counted, Residual
from engine.prediction.timing.step_time import step_work
from engine.prediction.timing.work import StepWork
from engine.tests.shared import slow, small_workload

H100 = GPUS["h100"]
small = pytest.mark.usefixtures("small_models", "kept_traces")


def launched(count: int, launching: float | None = None) -> StepWork:
    step = [work("aten.add", "float32", 0, 10) for _ in range(count)]
    return step_work(step, replace(H100, launch_seconds=launching), Precision.FP32)


@given(launching=st.floats(10e-6, 140e-6))
def test_the_launch_time_is_the_one_that_gives_the_measured_step(launching: float) -> None:
    measured = launched(1000, launching).seconds()
    assert launch_seconds(launched(1000), measured) == pytest.approx(launching, abs=2e-8)


def test_a_step_that_the_gpu_decides_says_nothing_of_its_host() -> None:
    filled = step_work([product()], H100, Precision.FP32)
    assert launch_seconds(filled, filled.seconds()) is None
    assert launch_seconds(filled, 0.99 * filled.seconds() / HOST_SHARE) is None


def test_a_step_that_no_host_explains_says_nothing_of_it() -> None:
    assert launch_seconds(launched(1000), 1.1 * launched(1000, SLOWEST).seconds()) is None


def test_a_step_that_waits_for_its_data_says_nothing_of_its_host() -> None:
    """As a large batch does that takes twice as long as its kernels."""
    filled = step_work([product()], H100, Precision.FP32)
    assert launch_seconds(filled, 2 * filled.seconds()) is None


def asked(batch_size: int = 2, **changes: Any) -> AnalysisRequest:
    workload = small_workload("bert")
    return AnalysisRequest(workload=workload, gpu="h100", current_batch_size=batch_size, **changes)


def measured(request: AnalysisRequest, launching: float, **changes: Any) -> Residual:
    """A step of the request's current batch on a host that takes so long for a launch."""
    there = replace(request, launch_microseconds=1e6 * launching)
    trial = predict_batch(there, lambda _: None).trial
    assert trial.step_seconds
    step = Residual(
        gpu="h100",
        workload=request.workload.to_dict(),
        batch_size=request.known_batch_size,
        counted=Counted.STEP_SECONDS,
        measured=trial.step_seconds,
        predicted=None,
        source="a test",
    )
    return replace(step, **changes)


def answered(request: AnalysisRequest, *steps: Residual) -> AnalysisResult:
    return analyze_predicted(request, lambda _: None, experience=Experience(steps))


@pytest.mark.slow
@small
def test_other_batches_are_predicted_with_the_host_that_a_step_told() -> None:
    request = asked()
    found = answered(request, measured(request, 43e-6))
    known = answered(replace(request, launch_microseconds=43.0))
    assert found.speedup == pytest.approx(known.speedup, rel=1e-2)
    assert found.recommended_batch_size == known.recommended_batch_size
    told = "Its host takes 43 µs to launch an operation, by what was measured of this workload at "
    assert any(caveat.startswith(f"{told}batch 2.") for caveat in found.caveats)
    unknown = answered(request)
    assert any("depends on the machine's CPU" in caveat for caveat in unknown.caveats)
    assert not any("depends on the machine's CPU" in caveat for caveat in found.caveats)


@pytest.mark.longer
@small
@pytest.mark.parametrize("changes", [slow({"gpu": "a100-80gb"}), {"workload": {"model": "gpt2"}}])
def test_other_gpus_and_workloads_tell_nothing(changes: dict[str, object]) -> None:
    request = asked()
    assert answered(request, measured(request, 43e-6, **changes)) == answered(request)


@pytest.mark.longer
@small
def test_a_launch_time_that_is_given_counts_more_than_a_measured_step() -> None:
    request = asked(launch_microseconds=20.0)
    assert answered(request, measured(request, 43e-6)) == answered(request)


@small
@pytest.mark.slow
def test_the_ladder_climbs_on_the_same_host() -> None:
    request = asked()
    step = measured(request, 43e-6)
    made = plan(request, lambda _: None, Experience([step]))
    today, found = made.ladder[0], answered(request, step)
    assert today.result is not None
    assert today.result.speedup == pytest.approx(found.speedup)
    own = next(option for option in made.options if option.gpu == "h100")
    assert own.recommended_batch_size == found.recommended_batch_size
    assert any("43 µs" in caveat for caveat in made.caveats)
