"""The one rule for a change: worth it in the middle, and sure enough at the low end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.economics import Speedup, savings
from engine.answer.worth import Gain, gain_by, is_worth_it, may_be_worth_it
from engine.interface.assumptions import Assumptions
from engine.interface.trial import Source

RATIOS = st.floats(0.1, 10.0)
SOURCES = st.sampled_from([Source.PREDICTED, Source.COMPUTED, Source.MEASURED])


@st.composite
def speedups(draw: st.DrawFn) -> Speedup:
    return Speedup(*(sorted(draw(st.tuples(RATIOS, RATIOS, RATIOS)))[i] for i in (1, 0, 2)))


@pytest.mark.parametrize(
    ("source", "ratio", "low", "worth"),
    [
        (Source.PREDICTED, 1.03, 1.0002, False),  # 1.0002 to 1.06: no decision
        (Source.PREDICTED, 1.05, 1.021, True),
        (Source.PREDICTED, 1.05, 1.02, False),
        (Source.PREDICTED, 1.0499, 1.04, False),
        (Source.PREDICTED, 3.0, 0.99, False),
        (Source.COMPUTED, 1.05, 1.021, True),
        (Source.COMPUTED, 1.04, 1.03, False),
        (Source.MEASURED, 1.03, 1.001, True),
        (Source.MEASURED, 1.0299, 1.02, False),
        (Source.MEASURED, 1.2, 1.0, False),  # one round was no faster
    ],
)
def test_the_rule(source: Source, ratio: float, low: float, worth: bool) -> None:
    assert is_worth_it(Speedup(ratio, low, 2 * ratio), source) is worth


@given(speedups(), SOURCES)
def test_no_change_is_worth_it_that_may_be_slower(gained: Speedup, source: Source) -> None:
    if is_worth_it(gained, source):
        assert gained.low > (1.0 if source is Source.MEASURED else 1.02)
        assert gained.ratio >= (1.03 if source is Source.MEASURED else 1.05)
        assert not may_be_worth_it(gained, source)


@given(speedups(), SOURCES)
def test_what_is_surer_and_faster_stays_worth_it(gained: Speedup, source: Source) -> None:
    better = Speedup(gained.ratio * 1.1, gained.low * 1.1, gained.high * 1.1)
    assert is_worth_it(gained, source) <= is_worth_it(better, source)


@given(speedups(), SOURCES)
def test_savings_are_counted_for_changes_alone(gained: Speedup, source: Source) -> None:
    taken = is_worth_it(gained, source)
    found = savings(Assumptions(8, 100), 2.0, gained, source, taken=taken)
    assert (found.usd_per_year > 0) is (found.gpu_hours_per_year > 0) is taken


@given(speedups(), SOURCES)
def test_without_its_interval_a_gain_is_judged_as_with_it(gained: Speedup, source: Source) -> None:
    is_sure = is_worth_it(gained, source)
    may_be = source is not Source.MEASURED and may_be_worth_it(gained, source)
    expected = Gain.SURE if is_sure else Gain.PROBABLE if may_be else Gain.NONE
    assert gain_by(gained.ratio, is_sure, source) is expected
