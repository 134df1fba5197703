"""The recommended batch is the smallest that is fast enough, timed or by a line through times."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer.recommendation import recommend_batch
from engine.answer.search import fit_step_time, knee, recommend


@settings(deadline=None)
@given(
    points=st.dictionaries(st.integers(1, 100), st.floats(0.1, 1e6), min_size=1),
    largest=st.integers(1, 120),
    batch_multiple=st.integers(1, 8),
)
def test_the_recommended_batch_is_the_smallest_within_five_percent_of_the_best(
    points: dict[int, float], largest: int, batch_multiple: int
) -> None:
    usable = [size for size in points if size <= largest and size % batch_multiple == 0]
    if not usable:
        with pytest.raises(ValueError, match="no timed multiple"):
            recommend(points.items(), largest, batch_multiple)
        return
    chosen = recommend(points.items(), largest, batch_multiple)
    best = max(points[size] for size in usable)
    assert chosen in usable
    assert points[chosen] >= 0.95 * best
    assert all(points[size] < 0.95 * best for size in usable if size < chosen)


@settings(deadline=None)
@given(
    alpha=st.floats(1e-4, 1.0),
    beta=st.floats(1e-5, 1e-1),
    largest=st.integers(1, 4000),
)
def test_a_straight_step_time_is_recommended_at_its_knee(
    alpha: float, beta: float, largest: int
) -> None:
    speeds = [(size, size / (alpha + beta * size)) for size in range(1, largest + 1)]
    chosen = recommend(speeds, largest)
    # The best speed within the bound is below 1 / beta, so the knee is an upper limit.
    assert chosen <= min(largest, math.ceil(knee(alpha, beta) * (1 + 1e-9)))
    assert chosen / (alpha + beta * chosen) >= 0.95 * speeds[-1][1] * (1 - 1e-9)


@settings(deadline=None)
@given(
    alpha=st.floats(1e-3, 1.0),
    beta=st.floats(1e-4, 1e-1),
    gamma=st.floats(0, 1e-2),
    sizes=st.sets(st.integers(1, 4000), min_size=1).map(sorted),
    safe=st.integers(1, 4000),
)
def test_a_predicted_speed_that_falls_again_is_not_followed_either(
    alpha: float, beta: float, gamma: float, sizes: list[int], safe: int
) -> None:
    """Where samples are compared with one another, a step's time has a square in it."""

    def speed(size: int) -> float:
        return size / (alpha + beta * size + gamma * size**2)

    chosen = recommend_batch(sizes, speed, sizes[-1], safe).batch_size
    allowed = [size for size in sizes if size <= safe] or sizes[:1]
    best = max(speed(size) for size in allowed)
    assert chosen in allowed
    assert speed(chosen) >= 0.95 * best * (1 - 1e-9)
    assert all(speed(s) < 0.95 * best * (1 + 1e-9) for s in allowed if s < chosen)


def test_exactly_five_percent_less_is_still_enough() -> None:
    assert recommend([(8, 95.0), (16, 100.0)], 16) == 8


def test_a_speed_that_falls_again_is_not_followed() -> None:
    assert recommend([(8, 100.0), (16, 190.0), (32, 195.0), (64, 150.0)], 64) == 16


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


def test_times_that_tell_nothing_are_refused() -> None:
    for points in ([], [(8, 1.0)], [(8, 1.0), (8, 2.0)], [(8, 0.0), (16, 1.0)], [(8, math.nan)]):
        with pytest.raises(ValueError, match=r"needed|more than 0"):
            fit_step_time(points)


@settings(deadline=None)
@given(alpha=st.floats(0, 10), beta=st.floats(1e-6, 10), share=st.floats(0.01, 0.99))
def test_the_knee_reaches_its_share_of_the_best_speed(
    alpha: float, beta: float, share: float
) -> None:
    size = knee(alpha, beta, share)
    # size / (alpha + beta * size) is share / beta there, written without a division by zero.
    assert size * beta == pytest.approx(share * (alpha + beta * size))


def test_the_knee_has_limits() -> None:
    assert knee(0.19, 0.01) == pytest.approx(361)
    assert knee(0.1, 0.0) == math.inf
    assert knee(0.0, 0.1) == 0
    with pytest.raises(ValueError, match="share"):
        knee(0.1, 0.1, 1.0)
