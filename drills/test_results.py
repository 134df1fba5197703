"""Summaries of the drills' measurements: pure functions, and their JSON."""

from __future__ import annotations

import json

import pytest

from drills.clients import Seen, Tally, count
from drills.commands import name_of, print_json
from drills.pages import page_times


def test_a_page_reports_its_medians_and_the_ratio_of_its_fastest_times() -> None:
    small = {"overview": [0.010, 0.020, 0.900]}
    large = {"overview": [0.800, 0.015, 0.030]}
    (page,) = page_times(small, large)
    assert page.page == "overview"
    assert (page.small_seconds, page.large_seconds) == (0.020, 0.030)
    assert page.ratio == pytest.approx(1.5)  # the busy moments of the machine do not count


def _tally(sent: list[str], kept: list[str], errors: int = 0, whole: int | None = None) -> Tally:
    seen = Seen(requests=3, errors=["refused"] * errors, sent={"analysis": sent})
    return count(seen, {"analysis": kept}, len(kept) if whole is None else whole)


def test_clients_pass_when_everything_sent_is_stored_once_and_complete() -> None:
    tally = _tally(["a", "b"], ["a", "b", "of a request that was cut off"])
    assert tally.is_well
    assert tally.requests == 3


@pytest.mark.parametrize(
    "tally",
    [
        _tally(["a", "b"], ["a"]),
        _tally(["a"], ["a", "a"]),
        _tally(["a"], ["a"], errors=1),
        _tally(["a"], ["a"], whole=0),
    ],
    ids=["lost", "doubled", "refused", "half kept"],
)
def test_clients_fail_otherwise(tally: Tally) -> None:
    assert not tally.is_well


def test_repeated_errors_are_all_counted_but_listed_once() -> None:
    tally = _tally([], [], errors=3)
    assert (tally.errors, tally.kinds_of_errors) == (3, ["refused"])


def test_printed_numbers_say_that_they_were_measured(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"database": name_of("")})
    assert json.loads(capsys.readouterr().out) == {"source": "measured", "database": "SQLite"}
