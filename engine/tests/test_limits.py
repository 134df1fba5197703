"""The predicted limit: found by as many trials as it takes, shown by those on both sides of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prediction.limits import predict_largest
from engine.result import Source, Trial

CAPACITY = 10_000


def trial(batch_size: int, each: int, unsteady: set[int]) -> Trial:
    """Within 10 % of the limit memory is given back, so all reserve the same, and some fit not."""
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
def test_the_limit_is_shown_by_the_trials_on_both_sides(
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
    assert outcome.trials == [*known, *(trial(size, each, unsteady) for size in shown)]


@pytest.mark.parametrize("each", [7, 97])
def test_memory_that_is_given_back_near_the_limit_shows_no_more_trials(each: int) -> None:
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
