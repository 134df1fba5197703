"""The points of a curve: from a small batch to a little beyond the limit."""

from __future__ import annotations

import pytest

from engine.answer.search import SearchOutcome
from engine.interface.trial import Source, Trial
from engine.prediction.predicted_findings import curve


def sizes(largest: int, *, multiple: int = 1, smallest: int = 1) -> list[int]:
    """The batch sizes of a curve where this is the largest that fits."""
    outcome = SearchOutcome(largest, largest + multiple, next_batch_size_fails=True, trials=[])

    def predict(size: int) -> Trial:
        return Trial(batch_size=size, fits=size <= largest, source=Source.PREDICTED)

    return [trial.batch_size for trial in curve(predict, outcome, multiple, smallest)]


@pytest.mark.parametrize("largest", [1, 2, 7, 100, 5000])
def test_it_begins_at_the_smallest_and_ends_about_the_limit(largest: int) -> None:
    found = sizes(largest)
    assert found[0] == 1
    assert largest * 0.9 <= found[-1] <= largest * 1.1 + 2
    assert found == sorted(set(found))


def test_powers_of_two_are_points() -> None:
    assert {1, 2, 4, 8, 16, 32, 64} <= set(sizes(100))


def test_only_multiples_are_points() -> None:
    assert all(size % 24 == 0 for size in sizes(1000, multiple=24))


def test_a_larger_one_to_begin_with_is_taken_where_larger_ones_fit() -> None:
    assert sizes(100, smallest=2)[0] == 2
    assert sizes(1, smallest=2)[0] == 1
