"""Savings come from speed alone, and are zero where there is no gain."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer.economics import Speedup, Verdict, savings, speedup
from engine.answer.worth import is_worth_it
from engine.interface.assumptions import Assumptions
from engine.interface.result import Savings
from engine.interface.trial import Source

SPEEDS = st.floats(1e-3, 1e6)
PRICES = st.floats(0, 100)
ASSUMPTIONS = st.builds(
    Assumptions, hours_per_run=st.floats(0, 1000), runs_per_year=st.floats(0, 10_000)
)


def test_savings_match_a_hand_calculation() -> None:
    """100 runs of 8 hours at 2 $ an hour, 1.25 times faster: 6.4 hours, 12.80 $ a run."""
    saved = savings(Assumptions(8, 100), 2.0, speedup(80.0, 100.0), Source.MEASURED, taken=True)
    assert saved.source is Source.MEASURED
    assert saved.gpu_hours_per_year == pytest.approx(160)
    assert saved.usd_per_year == pytest.approx(320)
    assert saved.current_usd_per_run == pytest.approx(16)
    assert saved.recommended_usd_per_run == pytest.approx(12.8)
    assert (saved.hours_per_run, saved.runs_per_year, saved.price_per_hour_usd) == (8, 100, 2)


def test_the_resolved_price_replaces_the_assumed_one() -> None:
    assumed = Assumptions(8, 100, price_per_hour_usd=None)
    saved = savings(assumed, 3.0, speedup(50.0, 100.0), Source.PREDICTED, taken=True)
    assert saved.price_per_hour_usd == 3.0
    assert saved.current_usd_per_run == 24


def test_what_is_not_taken_saves_nothing() -> None:
    gained = speedup(1.0, 1.2)
    saved = savings(Assumptions(8, 100), 2.0, gained, Source.PREDICTED, taken=False)
    assert saved.gpu_hours_per_year == saved.usd_per_year == 0
    assert saved.current_usd_per_run == saved.recommended_usd_per_run == 16


@pytest.mark.parametrize(
    ("gained", "verdict"),
    [
        (Speedup(1.10, 1.01, 1.20), Verdict.GAIN),
        (Speedup(1.10, 0.96, 1.27), Verdict.PROBABLE),
        (Speedup(1.01, 0.88, 1.16), Verdict.PROBABLE),
        (Speedup(1.01, 0.98, 1.04), Verdict.NO_GAIN),
        (Speedup(1.00, 0.97, 1.03), Verdict.NO_GAIN),
        (Speedup(0.98, 0.85, 1.13), Verdict.NO_GAIN),  # the batch of today is expected to be faster
    ],
)
def test_all_of_the_interval_decides_the_verdict(gained: Speedup, verdict: Verdict) -> None:
    assert gained.verdict is verdict


@pytest.mark.parametrize(("low", "gain"), [(0.999, False), (1.0, False), (1.001, True)])
def test_a_gain_is_one_whose_interval_lies_above_one(low: float, gain: bool) -> None:
    assert Speedup(1.1, low, 1.2).is_gain is gain


def saved_by(assumptions: Assumptions, price: float, current: float, recommended: float) -> Savings:
    gained = speedup(current, recommended)
    taken = is_worth_it(gained, Source.PREDICTED)
    return savings(assumptions, price, gained, Source.PREDICTED, taken=taken)


@settings(deadline=None)
@given(ASSUMPTIONS, PRICES, SPEEDS, SPEEDS)
def test_savings_lie_between_zero_and_all_and_agree_with_the_cost_per_run(
    assumptions: Assumptions, price: float, current: float, recommended: float
) -> None:
    saved = saved_by(assumptions, price, current, recommended)
    all_hours = assumptions.hours_per_run * assumptions.runs_per_year
    assert 0 <= saved.gpu_hours_per_year <= all_hours
    assert saved.usd_per_year == pytest.approx(saved.gpu_hours_per_year * price)
    per_run = saved.current_usd_per_run - saved.recommended_usd_per_run
    assert saved.usd_per_year == pytest.approx(
        per_run * assumptions.runs_per_year, rel=1e-6, abs=1e-6 * (1 + all_hours * price)
    )


@settings(deadline=None)
@given(ASSUMPTIONS, PRICES, SPEEDS, SPEEDS, SPEEDS)
def test_a_faster_recommendation_never_saves_less(
    assumptions: Assumptions, price: float, current: float, one: float, other: float
) -> None:
    slow, fast = sorted((one, other))
    less, more = (saved_by(assumptions, price, current, speed) for speed in (slow, fast))
    assert less.usd_per_year <= more.usd_per_year


@settings(deadline=None)
@given(SPEEDS, SPEEDS)
def test_the_speedup_is_the_ratio_of_samples_per_second(current: float, recommended: float) -> None:
    assert speedup(current, recommended).ratio * current == pytest.approx(recommended)


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan, math.inf])
def test_an_invalid_speed_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="positive number"):
        speedup(speed, 1.0)
    with pytest.raises(ValueError, match="positive number"):
        speedup(1.0, speed)
