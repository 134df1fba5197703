"""The recommended batch is the smallest fast enough, by measured times or a line through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer.economics import Speedup, speedup, within
from engine.answer.recommendation import (
    Bound,
    Recommendation,
    fit_step_time,
    global_batch_caveat,
    is_friendly,
    kept_global_batch,
    micro_batches,
    next_friendly,
    recommend_batch,
    recommend_measured,
)
from engine.answer.search import SearchOutcome
from engine.answer.worth import is_worth_it
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial


def chosen(
    sizes: Sequence[int],
    speed: Callable[[int], float],
    *,
    current: int | None = 1,
    largest: int | None = None,
    safe: int | None = None,
    has_global_batch: bool = False,
    noise: float = 0.0,
    source: Source = Source.PREDICTED,
) -> Recommendation:
    largest = sizes[-1] if largest is None else largest
    return recommend_batch(
        sizes,
        speed,
        current=current,
        largest=largest,
        safe=largest if safe is None else safe,
        gain_at=lambda size: speedup(
            speed(1 if current is None else current), speed(size), within(noise)
        ),
        source=source,
        has_global_batch=has_global_batch,
    )


SPEEDS = st.tuples(st.floats(1e-3, 1.0), st.floats(1e-4, 1e-1), st.floats(0, 1e-2))


@settings(deadline=None)
@given(
    parts=SPEEDS,
    sizes=st.sets(st.integers(1, 4000), min_size=1).map(sorted),
    current=st.none() | st.integers(1, 4000),
    safe=st.integers(0, 4000),
    noise=st.sampled_from([0.0, 0.03, 0.15, 0.6]),
    source=st.sampled_from([Source.PREDICTED, Source.COMPUTED, Source.MEASURED]),
)
def test_the_rule_of_the_recommended_batch(
    parts: tuple[float, float, float],
    sizes: list[int],
    current: int | None,
    safe: int,
    noise: float,
    source: Source,
) -> None:
    """Also where the speed falls again, as where a step compares its samples with one another."""
    alpha, beta, gamma = parts

    def speed(size: int) -> float:
        return size / (alpha + beta * size + gamma * size**2)

    largest = max(safe, sizes[-1])
    found = chosen(
        sizes, speed, current=current, largest=largest, safe=safe, noise=noise, source=source
    )
    allowed = [size for size in sizes if size <= safe]
    kept = [current] if current is not None and current <= safe else []
    if not allowed and not kept:
        assert found.batch_size == sizes[0]
        return
    best = max(map(speed, allowed + kept))
    assert speed(found.fastest) == best
    if kept:
        larger = [size for size in allowed if size > kept[0]]
        gains = {size: speedup(speed(kept[0]), speed(size), within(noise)) for size in larger}
        worth = [size for size in larger if is_worth_it(gains[size], source)]
        enough = [size for size in worth if speed(size) >= 0.95 * max(map(speed, worth))]
        assert found.batch_size == (enough[0] if enough else kept[0])
        assert enough or found.foregone is None or found.foregone.batch_size in larger
    else:
        assert found.batch_size == next(s for s in allowed if speed(s) >= 0.95 * best)


@settings(deadline=None)
@given(
    speeds=st.dictionaries(st.integers(1, 100), st.floats(1.0, 1000.0), min_size=2),
    intervals=st.lists(st.floats(0.0, 0.6), min_size=100, max_size=100),
    index=st.integers(0, 99),
)
def test_never_is_a_change_recommended_that_is_not_worth_it(
    speeds: dict[int, float], intervals: list[float], index: int
) -> None:
    """Whatever the speeds are, and however sure each of them is."""
    sizes = sorted(speeds)
    current = sizes[index % len(sizes)]

    def gain_at(size: int) -> Speedup:
        return speedup(speeds[current], speeds[size], within(intervals[size - 1]))

    found = recommend_batch(
        sizes,
        speeds.__getitem__,
        current=current,
        largest=sizes[-1],
        safe=sizes[-1],
        gain_at=gain_at,
        source=Source.PREDICTED,
    )
    if found.batch_size != current:
        gained = gain_at(found.batch_size)
        assert gained.ratio >= 1.05
        assert gained.low > 1.02


@pytest.mark.parametrize(
    ("source", "noise", "least"),
    [
        (Source.PREDICTED, 0.0, 105.0),
        (Source.COMPUTED, 0.0, 105.0),
        (Source.MEASURED, 0.0, 103.0),
        (Source.PREDICTED, 0.15, 118.0),  # 102 in the low end of the interval
    ],
)
def test_a_small_gain_is_not_worth_a_change(source: Source, noise: float, least: float) -> None:
    speeds = {8: 100.0, 16: least, 32: least - 1.0}
    found = chosen(tuple(speeds), speeds.__getitem__, current=8, noise=noise, source=source)
    assert (found.batch_size, found.foregone) == (16, None)
    speeds[16] = least - 1.0
    found = chosen(tuple(speeds), speeds.__getitem__, current=8, noise=noise, source=source)
    assert found.batch_size == 8
    assert found.foregone is not None
    assert found.foregone.gained.ratio == (least - 1.0) / 100


def test_exactly_five_percent_slower_is_still_enough() -> None:
    speeds = {8: 50.0, 16: 95.0, 32: 100.0}
    assert chosen(tuple(speeds), speeds.__getitem__, current=8).batch_size == 16
    speeds[16] = math.nextafter(95.0, 0)
    assert chosen(tuple(speeds), speeds.__getitem__, current=8).batch_size == 32


def test_without_a_current_batch_the_smallest_that_is_fast_enough_is_recommended() -> None:
    speeds = {8: 50.0, 16: 95.0, 32: 100.0}
    assert chosen(tuple(speeds), speeds.__getitem__, current=None).batch_size == 16


def test_a_speed_past_its_peak_is_not_followed() -> None:
    speeds = {8: 100.0, 16: 190.0, 32: 195.0, 64: 150.0, 128: 100.0}
    found = chosen(tuple(speeds), speeds.__getitem__, current=8)
    assert found == Recommendation(16, Bound.SPEED, 32)


def test_the_recommended_batch_is_never_below_one_that_surely_fits() -> None:
    slower = {8: 100.0, 16: 90.0, 32: 80.0}
    found = chosen(tuple(slower), slower.__getitem__, current=16)
    assert (found.batch_size, found.bound, found.fastest) == (16, Bound.SPEED, 8)
    assert chosen((8, 16, 32), float, current=20, largest=32, safe=30).batch_size == 20


def test_the_recommended_batch_is_below_one_that_may_not_fit() -> None:
    found = chosen((8, 16, 32), float, current=32, safe=31)
    assert found == Recommendation(16, Bound.MEMORY, 16)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
def test_the_fastest_size_is_found_wherever_it_is(count: int) -> None:
    for peak in range(count):
        speeds = [2.0 ** -abs(index - peak) for index in range(count)]
        found = chosen(range(count), speeds.__getitem__, current=0)
        assert found.batch_size == found.fastest == peak


def test_the_largest_safe_size_counts_as_safe_and_the_next_does_not() -> None:
    assert chosen((8, 16, 24, 32), float, current=8, safe=24).batch_size == 24
    assert chosen((8, 16, 24, 32), float, current=8, safe=23).batch_size == 16


def test_the_smallest_size_has_the_best_chance_where_none_is_safe() -> None:
    assert chosen((8, 16), float, current=8, safe=0) == Recommendation(8, Bound.MEMORY, 8)


@pytest.mark.parametrize(
    ("largest", "safe", "has_global_batch", "expected"),
    [
        (4, 4, False, Bound.SPEED),
        (4, 3, False, Bound.MEMORY),
        (64, 64, True, Bound.GLOBAL_BATCH),
        (64, 3, True, Bound.MEMORY),
        (7, 7, False, Bound.MEMORY),  # 8 would be the next
    ],
)
def test_the_recommendation_names_what_limits_it(
    largest: int, safe: int, has_global_batch: bool, expected: Bound
) -> None:
    found = chosen((1, 2, 4), float, largest=largest, safe=safe, has_global_batch=has_global_batch)
    assert found.bound is expected


def test_friendly_sizes_are_those_that_people_choose() -> None:
    found = [size for size in range(1, 100) if is_friendly(size)]
    assert found == [*range(1, 9), 16, 32, 64, 72, 80, 88, 96]
    assert [next_friendly(size) for size in (1, 8, 33, 64, 271)] == [2, 16, 64, 72, 272]


# --- the sizes to choose from -----------------------------------------------------------------


def asked(**fields: Any) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": "a10", "current_batch_size": 1} | fields)


def test_without_a_global_batch_friendly_multiples_up_to_the_limit_may_be_recommended() -> None:
    assert list(micro_batches(asked(), 20)) == [1, 2, 3, 4, 5, 6, 7, 8, 16]
    assert list(micro_batches(asked(batch_multiple=8), 72)) == [8, 16, 32, 64, 72]
    assert list(micro_batches(asked(batch_multiple=24), 71)) == [24, 48]  # none is friendly


@pytest.mark.parametrize(
    ("fields", "largest", "sizes"),
    [
        ({"global_batch_size": 12}, 100, [1, 2, 3, 4, 6]),
        ({"global_batch_size": 12}, 5, [1, 2, 3, 4]),
        ({"global_batch_size": 12, "batch_multiple": 2}, 100, [2, 4, 6]),
        ({"global_batch_size": 48, "batch_multiple": 12}, 100, [12, 24, 48]),  # none is friendly
        # None of the multiples divides it evenly: all of them.
        ({"global_batch_size": 20, "batch_multiple": 8}, 100, [8, 16]),
        # The global batch is smaller than the first multiple: any size.
        ({"global_batch_size": 6, "batch_multiple": 8}, 100, [1, 2, 3, 6]),
        ({"global_batch_size": 24, "world_size": 2, "parallelism": "ddp"}, 100, [1, 2, 3, 4, 6]),
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
    """t(b) = 1 + b / 10: 95% of the speed at 96, the fastest friendly one, is reached at b = 62."""
    found = recommend_measured(asked(current_batch_size=10), measured({10: 2.0, 100: 11.0}))
    assert found == Recommendation(64, Bound.SPEED, 96)


def test_a_single_measured_time_shows_no_gain() -> None:
    found = recommend_measured(asked(current_batch_size=10), measured({10: None, 100: 11.0}))
    assert found.batch_size == 10
    too_large = asked(current_batch_size=200)
    assert recommend_measured(too_large, measured({100: 11.0})).batch_size == 96


def test_measured_times_are_per_micro_batch() -> None:
    """Batch 1 accumulates 8 and batch 8 none: a micro-batch takes 1 s and 7.9 s."""
    found = recommend_measured(asked(global_batch_size=8), measured({1: 8.0, 8: 7.9}))
    assert (found.batch_size, found.bound, found.fastest) == (1, Bound.SPEED, 8)
    assert found.foregone is not None
    assert found.foregone.gained.ratio == pytest.approx(8 / 7.9)


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
