from __future__ import annotations

import pytest

from analyses.formatting import duration, exact, parameter_count, plain_number


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
