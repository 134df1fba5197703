"""Every superlative has its condition, and it is true of what has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.answer.superlatives import FASTEST, named_batches, of_those
from engine.cli.tests.test_render import ANALYSIS

PREDICTED = replace(ANALYSIS, fastest_batch_size=240, safe_batch_size=250, largest_batch_size=266)


def test_each_name_of_a_batch_has_its_condition() -> None:
    assert named_batches(PREDICTED) == {
        16: ["current"],
        64: ["recommended"],
        240: ["fastest that surely fits"],
        266: ["largest that may fit"],
    }


def test_one_batch_may_have_several_names() -> None:
    one = replace(
        PREDICTED, recommended_batch_size=250, fastest_batch_size=250, largest_batch_size=250
    )
    assert named_batches(one)[250] == [
        "recommended", "fastest that surely fits", "largest that surely fits",
    ]  # fmt: skip


def test_what_was_measured_fits() -> None:
    measured = replace(PREDICTED, safe_batch_size=None)
    assert named_batches(measured)[240] == ["fastest that fits"]
    assert named_batches(measured)[266] == ["largest that fits"]


@pytest.mark.parametrize("safe", [0, 4])
def test_where_no_batch_to_choose_from_surely_fits_none_is_called_the_fastest(safe: int) -> None:
    unsure = replace(
        PREDICTED, safe_batch_size=safe, fastest_batch_size=8, recommended_batch_size=8
    )
    assert named_batches(unsure)[8] == ["recommended"]
    assert named_batches(unsure)[266] == ["largest that may fit"]


def test_without_a_batch_today_none_is_current() -> None:
    assert 16 not in named_batches(replace(PREDICTED, current_batch_size=None))


def test_among_gpus_of_which_none_surely_fits_the_best_may_fit() -> None:
    assert of_those(FASTEST, is_sure=True) == "fastest that surely fits"
    assert of_those(FASTEST, is_sure=False) == "fastest that may fit"
