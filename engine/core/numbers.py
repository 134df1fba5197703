"""Numbers as people read them: units, no more digits than are known, a dash for what is not known.

The same on terminals, pages and in files; sizes of memory are in :mod:`engine.core.sizes`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10

UNKNOWN = "\N{EN DASH}"
_TIMES = "\N{MULTIPLICATION SIGN}"
_MINUS = "\N{MINUS SIGN}"
_MIN_MULTIPLE = 2
"""Ratio from which on a difference is shown as a multiple instead of a percentage."""
_MIN_PERCENT_LEFT = 0.5
"""The smallest part of the whole, in percent, that whole percents can show."""
_MIN_CENTS = 0.005
"""The smallest amount that cents can show."""


def whole(value: float | None) -> str:
    """A count, with thousands separators."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def significant(value: float | None, digits: int = 3) -> str:
    """A number rounded to ``digits`` significant digits, with thousands separators."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    for _ in range(2):  # twice, since 9.996 becomes 10.0 and then has a digit too many
        places = digits - 1 - floor(log10(abs(value)))
        value = round(value, places)
    return f"{value:,.{max(places, 0)}f}"


def share(value: float | None) -> str:
    """A part of a whole in percent: ``0.35`` is ``35%``, and ``0.001`` is ``<1%``."""
    if value is None:
        return UNKNOWN
    return "<1%" if 0 < value < 0.01 else f"{value:.0%}"


def usd(value: float | None) -> str:
    """Dollars: cents below 100, three significant digits above, as the inputs are no better.

    What rounds to no cent has three digits too: samples of a small model cost less than that.
    """
    if value is None:
        return UNKNOWN
    if value == 0:
        return "$0"
    in_cents = _MIN_CENTS <= abs(value) < 100
    return f"${value:,.2f}" if in_cents else f"${significant(value)}"


def small_usd(value: float | None) -> str:
    """The same with three significant digits below a dollar: a million tokens cost cents."""
    if value is None or value == 0 or value >= 1:
        return usd(value)
    return f"${significant(value)}"


def times(ratio: float | None) -> str:
    """A ratio of speeds, such as ``1.31×``, ``2.9×`` or ``120×``."""
    return UNKNOWN if ratio is None else f"{_ratio(ratio)}{_TIMES}"


def times_range(low: float, high: float) -> str:
    """An interval of a ratio, such as ``1.90–2.1×``."""
    return f"{_ratio(low)}\N{EN DASH}{times(high)}"


def difference(ratio: float) -> str:
    """A ratio to a baseline: a percentage, from 2 on a multiple, ``same`` below 0.5%.

    What leaves no more than 0.5% has one decimal, so that it is not ``−100%``: nothing left.
    """
    if ratio >= _MIN_MULTIPLE:
        return times(ratio)
    if 0 < 100 * ratio <= _MIN_PERCENT_LEFT:
        return f"{_MINUS}{floor(1000 * (1 - ratio)) / 10:.1f}%"
    change = round(100 * (ratio - 1))
    if change == 0:
        return "same"
    return f"+{change}%" if change > 0 else f"{_MINUS}{-change}%"


def signed(value: float, number: Callable[[float | None], str]) -> str:
    """A change with its sign, formatted as ``number`` does without one."""
    return f"{'+' if value > 0 else _MINUS if value < 0 else ''}{number(abs(value))}"


def _ratio(ratio: float) -> str:
    decimals = 2 if ratio < 1.995 else 1 if ratio < 99.95 else 0
    return f"{ratio:,.{decimals}f}"


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds, without the unit."""
    return UNKNOWN if seconds is None else significant(seconds * 1000)


def ms(seconds: float) -> str:
    """Seconds as milliseconds, such as ``12.3 ms``."""
    return f"{milliseconds(seconds)} ms"


def rate(per_second: float, of: str = "samples") -> str:
    """A speed, such as ``1,230 samples/s``."""
    return f"{significant(per_second)} {of}/s"
