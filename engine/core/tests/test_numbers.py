"""Numbers read alike on terminals, on pages and in files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.numbers import (
    UNKNOWN,
    difference,
    milliseconds,
    share,
    signed,
    significant,
    small_usd,
    times,
    times_range,
    usd,
    whole,
)
from engine.core.sizes import GIB, gib, gib_number, gib_of

MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"


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
    assert gib_number(value) == text


def test_gib_has_its_unit_unless_unknown() -> None:
    assert gib(GIB) == "1.00 GiB"
    assert gib(None) == UNKNOWN


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
        (0.00123, "$0.00123"),
        (5.649, "$5.65"),
        (99.994, "$99.99"),
        (1234.5, "$1,230"),
        (None, UNKNOWN),
    ],
)
def test_money_shows_cents_only_for_small_amounts(value: float | None, text: str) -> None:
    assert usd(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.3149, f"1.31{TIMES}"),
        (0.9, f"0.90{TIMES}"),
        (2.94, f"2.9{TIMES}"),
        (19.31, f"19.3{TIMES}"),
        (123.4, f"123{TIMES}"),
        (None, UNKNOWN),
    ],
)
def test_a_ratio_has_two_decimals_up_to_two_and_fewer_above(ratio: float | None, text: str) -> None:
    assert times(ratio) == text


def test_other_numbers_have_their_usual_form() -> None:
    assert whole(65536) == "65,536"
    assert whole(None) == UNKNOWN
    assert times_range(1.9, 2.1) == f"1.90\N{EN DASH}2.1{TIMES}"
    assert milliseconds(0.06264) == "62.6"
    assert [signed(value, share) for value in (0.25, -0.25, 0)] == ["+25%", f"{MINUS}25%", "0%"]
    assert (share(0.07), share(0.001), share(0.0)) == ("7%", "<1%", "0%")
    assert (small_usd(0.00123), small_usd(2.5)) == ("$0.00123", "$2.50")
    assert (gib(1024), gib_of(GIB, 2 * GIB, 1)) == ("<0.01 GiB", "1.0 of 2.0 GiB")


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1, "same"),
        (1.004, "same"),
        (1.24, "+24%"),
        (0.5, "\N{MINUS SIGN}50%"),
        (0.006, "\N{MINUS SIGN}99%"),
        (0.0041, "\N{MINUS SIGN}99.5%"),
        (0.000_5, "\N{MINUS SIGN}99.9%"),
        (0, "\N{MINUS SIGN}100%"),
        (3.4, "3.4\N{MULTIPLICATION SIGN}"),
    ],
)
def test_a_difference_reads_naturally(ratio: float, words: str) -> None:
    assert difference(ratio) == words


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_the_sign_of_a_difference_is_that_of_the_change(ratio: float) -> None:
    words = difference(ratio)
    assert words.startswith("\N{MINUS SIGN}") == (ratio < 1 and words != "same")
