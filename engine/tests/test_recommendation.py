"""The recommended batch is the smallest fast enough, by measured times or a line through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer.recommendation import (
    Bound,
    Recommendation,
    fit_step_time,
    global_batch_caveat,
    kept_global_batch,
    micro_batches,
    recommend_batch,
    recommend_measured,
)
from engine.answer.search import SearchOutcome
from engine.request import AnalysisRequest
from engine.result import Source, Trial


def chosen(
    sizes: Sequence[int], speed: Callable[[int], float], safe: int | None = None
) -> Recommendation:
    return recommend_batch(sizes, speed, sizes[-1], sizes[-1] if safe is None else safe)


@settings(deadline=None)
@given(
    alpha=st.floats(1e-4, 1.0),
    beta=st.floats(1e-5, 1e-1),
    largest=st.integers(1, 4000),
)
def test_a_linear_step_time_is_recommended_at_its_knee(
    alpha: float, beta: float, largest: int
) -> None:
    """At t(b) = alpha + beta·b, 95% of the best speed is reached at b = 19·alpha / beta."""

    def speed(size: int) -> float:
        return size / (alpha + beta * size)

    found = chosen(range(1, largest + 1), speed)
    assert found.bound is Bound.SPEED
    assert found.batch_size <= min(largest, math.ceil(19 * alpha / beta * (1 + 1e-9)))
    assert speed(found.batch_size) >= 0.95 * speed(largest) * (1 - 1e-9)


@settings(deadline=None)
@given(
    alpha=st.floats(1e-3, 1.0),
    beta=st.floats(1e-4, 1e-1),
    gamma=st.floats(0, 1e-2),
    sizes=st.sets(st.integers(1, 4000), min_size=1).map(sorted),
    safe=st.integers(1, 4000),
)
def test_a_predicted_speed_past_its_peak_is_not_followed(
    alpha: float, beta: float, gamma: float, sizes: list[int], safe: int
) -> None:
    """When a step compares samples with each other, its time has a quadratic term."""

    def speed(size: int) -> float:
        return size / (alpha + beta * size + gamma * size**2)

    found = recommend_batch(sizes, speed, sizes[-1], safe).batch_size
    allowed = [size for size in sizes if size <= safe] or sizes[:1]
    best = max(speed(size) for size in allowed)
    assert found in allowed
    assert speed(found) >= 0.95 * best * (1 - 1e-9)
    assert all(speed(s) < 0.95 * best * (1 + 1e-9) for s in allowed if s < found)


def test_exactly_five_percent_slower_is_still_enough() -> None:
    speeds = {8: 95.0, 16: 100.0}
    assert chosen((8, 16), speeds.__getitem__).batch_size == 8
    speeds[8] = math.nextafter(95.0, 0)
    assert chosen((8, 16), speeds.__getitem__).batch_size == 16


def test_a_speed_past_its_peak_is_not_followed() -> None:
    speeds = {8: 100.0, 16: 190.0, 32: 195.0, 64: 150.0, 128: 100.0}
    assert chosen(tuple(speeds), speeds.__getitem__) == Recommendation(16, Bound.SPEED)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
def test_the_fastest_size_is_found_wherever_it_is(count: int) -> None:
    for peak in range(count):
        speeds = [2.0 ** -abs(index - peak) for index in range(count)]
        assert chosen(range(count), speeds.__getitem__).batch_size == peak


def test_the_largest_safe_size_counts_as_safe_and_the_next_does_not() -> None:
    speeds = {8: 50.0, 16: 100.0, 24: 150.0, 32: 200.0}
    assert chosen(tuple(speeds), speeds.__getitem__, safe=24).batch_size == 24
    assert chosen(tuple(speeds), speeds.__getitem__, safe=23).batch_size == 16


def test_the_smallest_size_has_the_best_chance_where_none_is_safe() -> None:
    assert chosen((8, 16), float, safe=0) == Recommendation(8, Bound.MEMORY)


@pytest.mark.parametrize(
    ("sizes", "largest", "safe", "expected"),
    [
        ((1, 2, 4), 4, 4, Bound.SPEED),
        ((1, 2, 4), 4, 3, Bound.MEMORY),
        ((1, 2, 4), 64, 64, Bound.GLOBAL_BATCH),
        ((1, 2, 4), 64, 3, Bound.MEMORY),
    ],
)
def test_the_recommendation_names_what_limits_it(
    sizes: tuple[int, ...], largest: int, safe: int, expected: Bound
) -> None:
    assert recommend_batch(sizes, float, largest, safe).bound is expected


def test_the_bound_is_speed_at_95_percent_of_the_largest_batchs_speed() -> None:
    speeds = {19: 95.0, 20: 100.0}
    assert recommend_batch((19,), speeds.__getitem__, 20, 20).bound is Bound.SPEED
    speeds[19] = math.nextafter(95.0, 0)
    assert recommend_batch((19,), speeds.__getitem__, 20, 20).bound is Bound.GLOBAL_BATCH


# --- the sizes to choose from -----------------------------------------------------------------


def asked(**fields: Any) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": "a10", "current_batch_size": 1} | fields)


def test_without_a_global_batch_every_multiple_up_to_the_limit_may_be_recommended() -> None:
    assert list(micro_batches(asked(batch_multiple=8), 32)) == [8, 16, 24, 32]
    assert list(micro_batches(asked(batch_multiple=8), 31)) == [8, 16, 24]


@pytest.mark.parametrize(
    ("fields", "largest", "sizes"),
    [
        ({"global_batch_size": 12}, 100, [1, 2, 3, 4, 6, 12]),
        ({"global_batch_size": 12}, 6, [1, 2, 3, 4, 6]),
        ({"global_batch_size": 12}, 5, [1, 2, 3, 4]),
        ({"global_batch_size": 12, "batch_multiple": 2}, 100, [2, 4, 6, 12]),
        # None of the multiples divides it evenly: all of them.
        ({"global_batch_size": 20, "batch_multiple": 8}, 100, [8, 16]),
        # The global batch is smaller than the first multiple: any size.
        ({"global_batch_size": 6, "batch_multiple": 8}, 100, [1, 2, 3, 6]),
        (
            {"global_batch_size": 24, "world_size": 2, "parallelism": "ddp"},
            100,
            [1, 2, 3, 4, 6, 12],
        ),
    ],
)
def test_micro_batches_make_up_the_global_batch(
    fields: dict[str, Any], largest: int, sizes: list[int]
) -> None:
    assert list(micro_batches(asked(**fields), largest)) == sizes


def test_a_global_batch_is_kept_by_accumulation() -> None:
    request = asked(global_batch_size=24, world_size=2, parallelism="ddp")
    kept = kept_global_batch(request, 4)
    assert kept is not None
    assert (kept.size, kept.gradient_accumulation, kept.kept_size) == (24, 3, 24)
    assert "would see 8 samples instead of 24: 3 times as many" in kept.otherwise
    whole = kept_global_batch(request, 12)
    assert whole is not None
    assert (whole.gradient_accumulation, whole.kept_size) == (1, 24)
    assert whole.otherwise == "Batch 12 is the whole global batch, so nothing is accumulated."
    assert kept_global_batch(asked(), 4) is None


def test_a_changed_global_batch_is_a_caveat() -> None:
    plain = asked(current_batch_size=16, gradient_accumulation=2)
    assert global_batch_caveat(plain, 48) == (
        "Batch 48 raises the global batch from 32 to 96. You will take fewer optimizer steps per "
        "epoch and may need to retune the learning rate. To avoid this, set a global batch."
    )
    assert "lowers the global batch from 32 to 16. You will take more" in global_batch_caveat(
        plain, 8
    )
    assert "raises the global batch from 32 to 34" in global_batch_caveat(plain, 17)
    two = asked(current_batch_size=16, world_size=2, parallelism="ddp")
    assert "raises the global batch from 32 to 64" in global_batch_caveat(two, 32)
    assert global_batch_caveat(plain, 16) == ""
    assert global_batch_caveat(asked(global_batch_size=24), 8) == ""
    assert global_batch_caveat(asked(global_batch_size=20), 8) == (
        "No allowed batch divides the global batch of 20 evenly: 3 micro-batches of 8 make 24."
    )


# --- after a measured search ------------------------------------------------------------------


def measured(times: dict[int, float | None]) -> SearchOutcome:
    trials = [
        Trial(size, fits=True, source=Source.MEASURED, step_seconds=seconds)
        for size, seconds in times.items()
    ]
    return SearchOutcome(max(times), max(times) + 1, True, trials)


def test_measured_step_times_are_recommended_by_the_line_through_them() -> None:
    """t(b) = 1 + b / 10: 95% of the speed at 100 is reached at b = 63.3."""
    found = recommend_measured(asked(), measured({10: 2.0, 100: 11.0}))
    assert found == Recommendation(64, Bound.SPEED)


def test_a_single_measured_time_says_nothing_about_other_sizes() -> None:
    assert recommend_measured(asked(), measured({10: None, 100: 11.0})).batch_size == 100
    kept = asked(global_batch_size=60)
    assert recommend_measured(kept, measured({100: 11.0})) == Recommendation(60, Bound.GLOBAL_BATCH)


def test_measured_times_are_per_micro_batch() -> None:
    """Batch 1 accumulates 8 and batch 8 none: a micro-batch takes 1 s and 7.9 s."""
    found = recommend_measured(asked(global_batch_size=8), measured({1: 8.0, 8: 7.9}))
    assert found == Recommendation(1, Bound.SPEED)


# --- the line through step times --------------------------------------------------------------


@settings(deadline=None)
@given(
    alpha=st.floats(0.001, 10),
    beta=st.floats(0.0001, 1),
    sizes=st.sets(st.integers(1, 1000), min_size=2),
)
def test_an_exact_step_time_is_fitted_exactly(alpha: float, beta: float, sizes: set[int]) -> None:
    fitted_alpha, fitted_beta = fit_step_time([(size, alpha + beta * size) for size in sizes])
    assert fitted_alpha == pytest.approx(alpha, rel=1e-4, abs=1e-7)
    assert fitted_beta == pytest.approx(beta, rel=1e-4)


@settings(deadline=None)
@given(
    points=st.dictionaries(st.integers(1, 1000), st.floats(0.001, 100), min_size=2),
    nudge=st.tuples(st.floats(-0.1, 0.1), st.floats(-0.1, 0.1)),
)
def test_no_other_line_without_negative_times_fits_better(
    points: dict[int, float], nudge: tuple[float, float]
) -> None:
    def error(alpha: float, beta: float) -> float:
        return math.fsum((alpha + beta * size - time) ** 2 for size, time in points.items())

    alpha, beta = fit_step_time(points.items())
    assert alpha >= 0
    assert beta >= 0
    other = max(0.0, alpha + nudge[0]), max(0.0, beta + nudge[1])
    assert error(alpha, beta) <= error(*other) * (1 + 1e-9) + 1e-9


def test_a_line_with_a_negative_intercept_goes_through_the_origin() -> None:
    alpha, beta = fit_step_time([(1, 0.5), (2, 2.0)])
    assert alpha == 0
    assert beta == pytest.approx(0.9)
    assert fit_step_time([(1, 2.0), (3, 1.0)]) == (1.5, 0.0)


def test_unusable_times_are_refused() -> None:
    for points in ([], [(8, 1.0)], [(8, 1.0), (8, 2.0)], [(8, 0.0), (16, 1.0)], [(8, math.nan)]):
        with pytest.raises(ValueError, match=r"needed|more than 0"):
            fit_step_time(points)
