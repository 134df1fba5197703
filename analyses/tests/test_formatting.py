from __future__ import annotations

import pytest

from analyses.formatting import (
    duration,
    exact,
    gib,
    gib_with_unit,
    milliseconds,
    parameter_count,
    percent,
    plain_number,
    significant,
    times,
    usd,
    whole,
)
from engine.core.sizes import GIB

TIMES = "\N{MULTIPLICATION SIGN}"
UNKNOWN = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.00"),
        (1024, "<0.01"),
        (int(21.434 * GIB), "21.43"),
        (2048 * GIB, "2,048.00"),
        (None, UNKNOWN),
    ],
)
def test_bytes_read_as_gib_with_two_decimals(value: int | None, text: str) -> None:
    assert gib(value) == text


def test_gib_has_its_unit_unless_unknown() -> None:
    assert gib_with_unit(GIB) == "1.00 GiB"
    assert gib_with_unit(None) == UNKNOWN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1,230"),
        (62.64, "62.6"),
        (9.996, "10.0"),
        (0.012345, "0.0123"),
        (1.0, "1.00"),
        (-2.345, "-2.35"),
        (0, "0"),
        (None, UNKNOWN),
    ],
)
def test_estimates_show_three_significant_digits(value: float | None, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "$0"),
        (0.001, "<$0.01"),
        (5.649, "$5.65"),
        (99.994, "$99.99"),
        (1234.5, "$1,230"),
        (None, UNKNOWN),
    ],
)
def test_money_shows_cents_only_for_small_amounts(value: float | None, text: str) -> None:
    assert usd(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3725, "1 h 02 min"),
    ],
)
def test_durations_read_naturally(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_other_numbers_have_their_usual_form() -> None:
    assert whole(65536) == "65,536"
    assert whole(None) == UNKNOWN
    assert times(1.3149) == f"1.31{TIMES}"
    assert milliseconds(0.06264) == "62.6"
    assert (percent(7, 100), percent(1, 1000), percent(0, 9)) == ("7%", "<1%", "0%")


def test_entered_numbers_are_shown_as_entered() -> None:
    assert (exact(8.0), exact(2.5), exact(1_234_567.0)) == ("8", "2.5", "1,234,567")
    assert (plain_number(8.0), plain_number(0.86)) == ("8", "0.86")


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (11_689_512, "11.7M"),
        (110_000_000, "110M"),
        (999_885_952, "1B"),
        (8_030_261_248, "8.03B"),
        (67_000_000, "67M"),
    ],
)
def test_parameter_counts_are_written_as_in_papers(count: int, shown: str) -> None:
    assert parameter_count(count) == shown
