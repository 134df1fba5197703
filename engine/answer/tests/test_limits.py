"""The predicted limit: found by as few trials as possible, certified by those on both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer.recommendation import Bound, Recommendation
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial
from engine.prediction.limits import Limits, find_limits, largest_safe, predict_largest
from engine.prediction.probe import usable_bytes
from engine.prediction.tests.made import MadePrediction

CAPACITY = 10_000


def trial(batch_size: int, each: int, unsteady: set[int]) -> Trial:
    """Within 10% of the limit memory is freed, so all reserve the same, and some do not fit."""
    needed = batch_size * each
    fits = needed <= CAPACITY * 1.1 and not (needed > CAPACITY and batch_size in unsteady)
    reserved = min(needed, CAPACITY) if fits else max(needed, CAPACITY + 1)
    return Trial(batch_size, fits, Source.PREDICTED, peak_reserved_bytes=reserved)


@settings(deadline=None)
@given(
    each=st.integers(1, 12_000),
    current=st.integers(1, 2_000),
    multiple=st.sampled_from([1, 2, 8]),
    unsteady=st.sets(st.integers(1, 11_000)),
)
def test_the_limit_is_certified_by_the_trials_on_both_sides(
    each: int, current: int, multiple: int, unsteady: set[int]
) -> None:
    shown = []

    def probe(batch_size: int) -> Trial:
        shown.append(batch_size)
        return trial(batch_size, each, unsteady)

    known = [trial(current, each, unsteady)]
    outcome = predict_largest(
        lambda size: trial(size, each, unsteady), probe, multiple, CAPACITY, known
    )
    largest, following = outcome.largest_batch_size, outcome.next_batch_size
    assert following == largest + multiple
    assert largest == 0 or trial(largest, each, unsteady).fits
    assert not trial(following, each, unsteady).fits
    assert outcome.next_batch_size_fails
    assert set(shown) <= {largest, following}
    below = largest - multiple
    assert below <= current or trial(below, each, unsteady).fits
    assert outcome.trials == [*known, *(trial(size, each, unsteady) for size in shown)]


@pytest.mark.parametrize("each", [7, 97])
def test_memory_freed_near_the_limit_adds_no_trials_to_the_answer(each: int) -> None:
    tried: list[int] = []
    shown: list[int] = []

    def counting(sizes: list[int], batch_size: int) -> Trial:
        sizes.append(batch_size)
        return trial(batch_size, each, set())

    outcome = predict_largest(
        lambda size: counting(tried, size), lambda size: counting(shown, size), 1, CAPACITY
    )
    assert shown == [outcome.largest_batch_size, outcome.next_batch_size]
    assert len(tried) > len(shown)


def test_a_batch_that_fits_above_one_that_does_not_is_no_limit() -> None:
    """So it was with ZeRO-3 of an 8B: 14 and 16 samples fitted, and 15 did not."""

    def packed(batch_size: int) -> Trial:
        needed = 100 * batch_size + 500 * (batch_size == 15)
        return Trial(batch_size, needed <= 1650, Source.PREDICTED, peak_reserved_bytes=needed)

    for current in (1, 2, 14, 17):
        outcome = predict_largest(packed, packed, 1, 1650, [packed(current)])
        assert (outcome.largest_batch_size, outcome.next_batch_size) == (14, 15)
    assert predict_largest(packed, packed, 1, 1650).largest_batch_size == 14
    assert predict_largest(packed, packed, 1, 1650, [packed(16)]).largest_batch_size == 16


# --- the batch that is safe --------------------------------------------------------------------


class Linear:
    """Predicts 10 bytes per sample and a tenth more at the high end; counts the predictions."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.tried: list[int] = []

    def __call__(self, batch_size: int) -> Trial:
        self.tried.append(batch_size)
        used = 10 * batch_size
        return Trial(
            batch_size,
            fits=used <= self.total_bytes,
            source=Source.PREDICTED,
            peak_reserved_bytes=used,
            device_used_bytes=used,
            device_used_high_bytes=11 * batch_size,
        )


@given(total_bytes=st.integers(10, 100_000), multiple=st.sampled_from([1, 8]))
def test_the_safe_batch_is_the_largest_whose_high_end_fits(total_bytes: int, multiple: int) -> None:
    largest = total_bytes // 10 // multiple * multiple
    if largest:
        safe = largest_safe(Linear(total_bytes), largest, total_bytes, multiple)
        assert safe == total_bytes // 11 // multiple * multiple


def test_a_high_end_of_exactly_all_memory_is_safe() -> None:
    assert largest_safe(Linear(1100), 100, 1100, 1) == 100
    assert largest_safe(Linear(1099), 100, 1099, 1) == 99


def test_the_safe_batch_takes_three_predictions_where_memory_is_linear() -> None:
    predict = Linear(10_000)
    assert largest_safe(predict, 1000, 10_000, 1) == 909
    assert predict.tried == [1000, 909, 910]


def test_a_batch_far_off_shows_how_much_a_sample_takes() -> None:
    """Weights take memory at any batch, so a line through the limit alone ends too high."""

    class WithWeights(Linear):
        def __call__(self, batch_size: int) -> Trial:
            used = super().__call__(batch_size).device_used_bytes or 0
            high = (used + 5_000) * 11 // 10
            return replace(super().__call__(batch_size), device_used_high_bytes=high)

    predict = WithWeights(10_000)
    assert largest_safe(predict, 1000, 10_000, 1, first=16) == 409
    assert list(dict.fromkeys(predict.tried)) == [1000, 16, 409, 410]


def test_only_what_is_safe_at_first_sight_is_looked_at_with_care() -> None:
    asked: list[int] = []

    def careful(limit: int, batch_size: int) -> Trial:
        asked.append(batch_size)
        trial = Linear(10_000)(batch_size)
        return trial if batch_size <= limit else replace(trial, device_used_high_bytes=10_001)

    assert largest_safe(Linear(10_000), 1000, 10_000, 1, partial(careful, 909)) == 909
    assert asked == [909]
    assert largest_safe(Linear(10_000), 1000, 10_000, 1, partial(careful, 905)) == 905
    assert largest_safe(Linear(10_000), 1000, 10_000, 1, partial(careful, 0)) == 0
    assert max(asked) == 909


def test_no_batch_above_the_largest_is_safe() -> None:
    """A batch above the limit that fits again is not considered."""
    asked: list[int] = []

    def predict(batch_size: int) -> Trial:
        asked.append(batch_size)
        high = 2000 if batch_size == 100 else 10
        return replace(Linear(10_000)(batch_size), device_used_high_bytes=high)

    assert largest_safe(predict, 100, 1000, 1) == 99
    assert max(asked) == 100


def test_a_failed_trial_or_one_without_an_interval_is_not_safe() -> None:
    without = Linear(10_000)
    assert (
        largest_safe(lambda b: replace(without(b), device_used_high_bytes=None), 8, 10_000, 1) == 0
    )
    assert largest_safe(lambda b: replace(without(b), fits=False), 8, 10_000, 1) == 0


# --- what others take --------------------------------------------------------------------------


def test_the_search_aims_at_what_nccl_and_vllm_leave() -> None:
    shared = {"parallelism": "ddp", "world_size": 8}
    colocated = {"rollout": "vllm", "vllm_share": 30, "method": "grpo", "vllm_sleep": False}
    for model, fields in (("bert", shared), ("llama-3.2-1b", colocated)):
        given = {"model": model, "gpu": "a100-80gb", "current_batch_size": 1, **fields}
        request, gpu = AnalysisRequest.parse(given), GPUS["a100-80gb"]
        left = usable_bytes(request.workload, gpu)
        tried: list[int] = []

        def predict(size: int, left: int = left, tried: list[int] = tried) -> Trial:
            tried.append(size)
            need = 2**30 + size * 2**22  # a line, so that one secant step is enough
            return Trial(size, need <= left, Source.PREDICTED, peak_reserved_bytes=need)

        made = MadePrediction(request, gpu, predict, float)
        largest = find_limits(made).outcome.largest_batch_size
        assert left < gpu.usable_bytes
        assert largest == (left - 2**30) // 2**22
        beyond = sorted({size for size in tried if size > largest})
        assert beyond[0] == largest + 1
        assert all(size >= 2 * largest for size in beyond[1:])


# --- all three ---------------------------------------------------------------------------------

A10 = GPUS["a10"]


def used(batch_size: int, per_sample: int, high: float = 1.0) -> Trial:
    """Memory on an A10: this many bytes per sample, plus the context."""
    reserved = per_sample * batch_size
    return Trial(
        batch_size,
        fits=reserved <= A10.usable_bytes,
        source=Source.PREDICTED,
        peak_reserved_bytes=reserved,
        device_used_bytes=reserved + A10.context_bytes,
        device_used_high_bytes=int((reserved + A10.context_bytes) * high),
        samples_per_second=float(batch_size),
    )


def asked(**fields: object) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | fields)


def limits_of(
    trial_of: Callable[[int], Trial],
    speed_of: Callable[[int], float] | None = None,
    **fields: object,
) -> Limits:
    return find_limits(MadePrediction(asked(**fields), A10, trial_of, speed_of))


def test_the_limit_is_checked_against_usable_memory_and_safety_against_all() -> None:
    """Ten samples fill the memory left by the context, and with the context the whole GPU."""
    per_sample = A10.usable_bytes // 10
    limits = limits_of(lambda size: used(size, per_sample))
    assert limits.outcome.largest_batch_size == 10
    assert limits.safe_batch_size == 10
    assert limits.choice == Recommendation(8, Bound.MEMORY, 8)  # 16 does not fit


def test_the_recommended_batch_is_safe_and_a_multiple() -> None:
    per_sample = A10.usable_bytes // 100
    limits = limits_of(lambda size: used(size, per_sample, 1.3), batch_multiple=8)
    assert limits.outcome.largest_batch_size == 96
    assert limits.outcome.next_batch_size == 104
    assert limits.choice is not None
    assert limits.safe_batch_size == limits.choice.batch_size
    assert limits.choice.bound is Bound.MEMORY
    high = used(limits.safe_batch_size, per_sample, 1.3).device_used_high_bytes
    above = used(limits.safe_batch_size + 8, per_sample, 1.3).device_used_high_bytes
    assert high is not None
    assert above is not None
    assert high <= A10.total_bytes < above


def test_the_limit_may_be_one_sample_and_without_one_nothing_is_recommended() -> None:
    one = limits_of(lambda size: used(size, A10.usable_bytes))
    assert one.choice == Recommendation(1, Bound.SPEED, 1)
    assert one.safe_batch_size == 1
    none = limits_of(lambda size: used(size, A10.usable_bytes + 1))
    assert (none.outcome.largest_batch_size, none.safe_batch_size, none.choice) == (0, 0, None)


def test_an_unknown_speed_counts_as_zero() -> None:
    def silent(batch_size: int) -> Trial:
        return replace(used(batch_size, A10.usable_bytes // 10), samples_per_second=None)

    limits = limits_of(silent)
    assert limits.choice is not None
    assert limits.choice.batch_size == 1


def test_a_speed_takes_no_trial() -> None:
    """The speeds of all batches are compared, and few are tried."""
    tried: list[int] = []
    timed: list[int] = []

    def predict(batch_size: int) -> Trial:
        tried.append(batch_size)
        return used(batch_size, A10.usable_bytes // 1000)

    def speed(batch_size: int) -> float:
        timed.append(batch_size)
        return float(batch_size)

    limits_of(predict, speed)
    assert len(set(tried)) < len(set(timed))


def test_a_batch_that_is_packed_badly_is_not_recommended() -> None:
    """It does not fit, though larger ones do."""

    def predict(batch_size: int) -> Trial:
        trial = used(batch_size, A10.usable_bytes // 1000)
        return replace(trial, fits=False, samples_per_second=None) if batch_size == 952 else trial

    assert limits_of(predict, float) == limits_of(predict)


def test_known_trials_are_not_predicted_again() -> None:
    shown: list[int] = []

    def probe(batch_size: int) -> Trial:
        shown.append(batch_size)
        return used(batch_size, A10.usable_bytes // 10)

    known = [used(10, A10.usable_bytes // 10)]
    made = MadePrediction(asked(), A10, lambda size: used(size, A10.usable_bytes // 10))
    limits = find_limits(made, probe=probe, known=known)
    assert shown == [11]
    assert [trial.batch_size for trial in limits.outcome.trials] == [10, 11]


def test_the_limit_is_predicted_by_a_line_to_the_memory_left_by_the_context() -> None:
    """One trial gives the line, two certify the limit; the others are for the recommendation."""
    tried: list[int] = []

    def predict(batch_size: int) -> Trial:
        tried.append(batch_size)
        return used(batch_size, A10.usable_bytes // 1000)

    assert limits_of(predict).outcome.largest_batch_size == 1000
    assert tried[:3] == [16, 1000, 1001]
    assert len(tried) == len(set(tried))
