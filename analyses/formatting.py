"""How figures read on pages: units, thousands separators, and no digit that means nothing."""

from __future__ import annotations

from math import floor, log10

from engine.gpus import GIB

UNKNOWN = "\N{EN DASH}"
_TIMES = "\N{MULTIPLICATION SIGN}"
_SMALLEST_SHOWN = 0.005
"""What two decimals can show; anything smaller reads as "less than 0.01"."""


def gib(value: int | None) -> str:
    """Bytes as GiB with two decimals and no unit, for a column whose head gives the unit."""
    if value is None:
        return UNKNOWN
    amount = value / GIB
    return "<0.01" if 0 < amount < _SMALLEST_SHOWN else f"{amount:,.2f}"


def gib_with_unit(value: int | None) -> str:
    """Bytes as ``21.43 GiB``."""
    return UNKNOWN if value is None else f"{gib(value)} GiB"


def scaled(value: float, power: int) -> str:
    """A rate in units of a power of ten: ``scaled(125e12, 12)`` is ``125``."""
    return significant(value / 10**power)


def whole(value: int | None) -> str:
    """A count with thousands separators."""
    return UNKNOWN if value is None else f"{value:,}"


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


def usd(value: float | None) -> str:
    """Dollars: cents below 100, three significant digits above, as the inputs are no better."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "$0"
    if value < _SMALLEST_SHOWN:
        return "<$0.01"
    return f"${significant(value)}" if value >= 100 else f"${value:,.2f}"


def times(value: float | None) -> str:
    """A ratio such as a speedup, with a multiplication sign after it."""
    return UNKNOWN if value is None else f"{significant(value)}{_TIMES}"


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds with three significant digits and no unit."""
    return UNKNOWN if seconds is None else significant(seconds * 1000)


def parameter_count(value: int) -> str:
    """A number of parameters as papers write it: ``110 M``, ``1.24 B``."""
    billions = value >= 999_500_000
    return f"{value / (1e9 if billions else 1e6):.3g} {'B' if billions else 'M'}"


def percent(part: int, total: int) -> str:
    """A share of a total: ``7 %``."""
    share = 100 * part / total
    return "<1 %" if 0 < share < 1 else f"{share:.0f} %"


def duration(seconds: float) -> str:
    """A span of time as a person says it: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``1 h 02 min``."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, rest = divmod(total, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def exact(value: float) -> str:
    """A number as somebody gave it, with thousands separators: ``8``, ``2.5``, ``12,000``."""
    return f"{value:,.10g}"


def plain_number(value: float) -> str:
    """A number as a person would type it into a field: ``8``, not ``8.0``."""
    return str(int(value)) if value == int(value) else str(value)
