"""The recommended batch keeps the global batch, is safe in memory, and states what changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.recommendation import is_friendly, micro_batches
from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.prediction.limits import find_limits, largest_safe
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.tests.made import MadePrediction
from engine.tests.shared import small_workload

GIB = 2**30
A10 = GPUS["a10"]


def ask(**fields: object) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | fields)


def probe(gib_per_sample: float, margin: float = 1.06) -> Callable[[int], Trial]:
    """A probe whose memory grows linearly per sample and whose speed depends on the batch."""

    def tried(batch_size: int) -> Trial:
        used = int(batch_size * gib_per_sample * GIB) + A10.context_bytes
        return Trial(
            batch_size,
            used <= A10.total_bytes,
            Source.PREDICTED,
            peak_reserved_bytes=used - A10.context_bytes,
            device_used_bytes=used,
            device_used_high_bytes=int(used * margin),
            samples_per_second=batch_size / (batch_size + 4),
        )

    return tried


def test_the_current_accumulation_follows_from_the_global_batch() -> None:
    request = ask(current_batch_size=16, global_batch_size=256)
    assert request.accumulation_at(16) == 16
    assert request.accumulation_at(64) == 4
    assert request.accumulation_at(256) == 1
    assert request.accumulation_at(1000) == 1
    assert request.workload_at(64).gradient_accumulation == 4


def test_without_a_global_batch_the_workloads_accumulation_applies() -> None:
    request = ask(gradient_accumulation=3)
    assert request.accumulation_at(1) == request.accumulation_at(64) == 3
    assert request.workload_at(5) is request.workload


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"global_batch_size": 100}, "not a multiple of the 16"),
        ({"global_batch_size": 8}, "not a multiple of the 16"),
        ({"global_batch_size": 64, "gradient_accumulation": 2}, "make 32, not 64"),
        ({"global_batch_size": 0}, "whole number from 1"),
        ({"global_batch_size": "many"}, "whole number from 1"),
        ({"global_batch_size": 48, "world_size": 2, "parallelism": "ddp"}, "multiple of the 32"),
    ],
)
def test_a_global_batch_the_current_batch_cannot_make_up_is_refused(
    fields: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        ask(**fields)
    assert said in caught.value.fields["global_batch_size"]


def test_the_global_batch_survives_as_flat_fields() -> None:
    request = ask(global_batch_size=64)
    assert AnalysisRequest.parse(request.to_dict()) == request


@given(
    multiple=st.integers(1, 16),
    current=st.integers(1, 64),
    accumulated=st.integers(1, 64),
    largest=st.integers(1, 3000),
    gpus=st.integers(1, 8),
)
def test_micro_batches_fit_into_the_global_batch_and_divide_it_if_possible(
    multiple: int, current: int, accumulated: int, largest: int, gpus: int
) -> None:
    parallel = {"world_size": gpus, "parallelism": "ddp"} if gpus > 1 else {}
    wanted = current * accumulated * gpus
    request = ask(
        current_batch_size=current,
        batch_multiple=multiple,
        global_batch_size=wanted,
        **parallel,
    )
    sizes = micro_batches(request, largest)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] >= 1
    assert sizes[-1] <= min(largest, wanted // gpus)
    multiples = [size for size in range(1, sizes[-1] + 1) if size % multiple == 0]
    even = [size for size in multiples if wanted // gpus % size == 0]
    if even:
        assert list(sizes) == ([size for size in even if is_friendly(size)] or even)
    for size in sizes:
        kept = request.accumulation_at(size) * size * gpus
        assert wanted <= kept < wanted + size * gpus


def test_the_safe_batch_fits_at_the_high_end_and_the_next_does_not() -> None:
    predict = probe(0.1)
    limits = find_limits(MadePrediction(ask(), A10, predict))
    largest, safe = limits.outcome.largest_batch_size, limits.safe_batch_size
    assert predict(largest).fits
    assert safe < largest
    for size, within in ((safe, True), (safe + 1, False)):
        high = predict(size).device_used_high_bytes
        assert high is not None
        assert (high <= A10.total_bytes) is within


def test_a_range_within_the_memory_left_changes_nothing() -> None:
    assert largest_safe(probe(0.1, margin=1.0), 218, A10.total_bytes, 1) == 218


def test_nothing_is_safe_where_even_one_sample_may_not_fit() -> None:
    limits = find_limits(MadePrediction(ask(), A10, probe(21.5)))
    assert limits.outcome.largest_batch_size == 1
    assert limits.safe_batch_size == 0
    assert limits.choice is not None
    assert limits.choice.batch_size == 1


@pytest.mark.slow
@pytest.mark.usefixtures("small_models", "kept_traces")
def test_an_analysis_keeps_the_global_batch() -> None:
    request = ask(
        model="bert", sequence_length=32, current_batch_size=2, global_batch_size=24, gpu="a10"
    )
    result = analyze_predicted(request, lambda _: None)
    assert result.recommended_batch_size <= 24
    assert 24 % result.recommended_batch_size == 0
    assert result.global_batch is not None
    assert result.global_batch.kept_size == 24
    # Speed is of the whole optimizer step: forward and backward run once per micro-batch.
    trials = {trial.batch_size: trial for trial in result.trials}
    current = trials[2]
    assert current.step_seconds is not None
    assert current.samples_per_second == pytest.approx(24 / current.step_seconds)


@pytest.mark.longer
@pytest.mark.usefixtures("small_models", "kept_traces")
@pytest.mark.usefixtures("small_models")
def test_without_a_global_batch_the_change_is_a_caveat() -> None:
    request = ask(sequence_length=32, current_batch_size=1)
    result = analyze_predicted(request, lambda _: None)
    assert result.global_batch is None
    assert any("raises the global batch from 1 to" in caveat for caveat in result.caveats)
    assert result.safe_batch_size is not None
    assert result.recommended_batch_size <= result.safe_batch_size <= result.largest_batch_size


@pytest.mark.slow
def test_the_recommended_batch_is_safe_at_the_high_end() -> None:
    tight = replace(ask(current_batch_size=1), memory_limit_bytes=3 * GIB)
    result = analyze_predicted(tight, lambda _: None)
    trials = {trial.batch_size: trial for trial in result.trials}
    high = trials[result.recommended_batch_size].device_used_high_bytes
    assert high is not None
    assert high <= 3 * GIB
    assert result.safe_batch_size is not None
    assert result.safe_batch_size < result.largest_batch_size
    assert any(f"Batch {result.safe_batch_size:,} fits even" in c for c in result.caveats)


@pytest.mark.usefixtures("small_models", "kept_traces")
def test_a_measured_step_counts_the_samples_of_all_its_micro_batches() -> None:
    workload = small_workload("bert", gradient_accumulation=3)
    trial = cpu.run_trial(TrialOrder(workload, 2))
    assert trial.step_seconds is not None
    assert trial.samples_per_second == pytest.approx(6 / trial.step_seconds)
