"""The period of a total: this month, this quarter, this year, all, or from one day to another."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from engine.core.errors import InvalidInput

EARLIEST = date(2000, 1, 1)
"""Long before the first analysis of any lab."""


class Named(StrEnum):
    """The periods that have a name; each ends today."""

    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"
    ALL = "all"


@dataclass(frozen=True)
class Period:
    """The days of a total, both included (UTC).

    Attributes:
        name: Such as ``this year``, or ``2026-01-01 to 2026-03-31``.
        is_all: Whether it starts with the first analysis.
    """

    name: str
    first: date
    last: date
    is_all: bool = False

    @property
    def days(self) -> int:
        return self.last.toordinal() - self.first.toordinal() + 1


def period_of(named: str, first: str, last: str, today: date) -> Period:
    """The period of an address.

    Args:
        named: One of :class:`Named`; this year if all three are empty.
        first: Its first day, such as ``2026-01-01``; from the beginning if only the last is given.
        last: Its last day; until today if only the first is given, or if it is yet to come.
        today: The day in UTC.

    Raises:
        InvalidInput: With a message for each wrong field.
    """
    wrong: dict[str, str] = {}
    if named and named not in list(Named):
        wrong["period"] = f"choose one of {', '.join(Named)}, or enter from and to"
    days = {"from": _day(first, "from", wrong), "to": _day(last, "to", wrong)}
    begin, end = days["from"] or EARLIEST, min(days["to"] or today, today)
    if named and (first or last):
        wrong["period"] = "choose a period, or enter from and to, not both"
    if not wrong and begin > today:
        wrong["from"] = f"it is in the future; today is {today} (UTC)"
    elif not wrong and end < begin:
        wrong["to"] = "it is before the first day"
    if wrong:
        raise InvalidInput(wrong)
    if first or last:
        name = f"{begin} to {end}" if first else f"until {end}"
        return Period(name, begin, end, is_all=not first)
    return _named(Named(named or Named.YEAR), today)


def month_of(month: date, today: date) -> Period:
    """A calendar month, until today if that is in it."""
    last = month.replace(day=monthrange(month.year, month.month)[1])
    return Period(f"{month:%B %Y}", month, max(month, min(last, today)))


def _named(named: Named, today: date) -> Period:
    match named:
        case Named.MONTH:
            return Period("this month", today.replace(day=1), today)
        case Named.QUARTER:
            month = 3 * ((today.month - 1) // 3) + 1
            return Period("this quarter", today.replace(month=month, day=1), today)
        case Named.YEAR:
            return Period("this year", today.replace(month=1, day=1), today)
        case Named.ALL:
            return Period("since the first analysis", EARLIEST, today, is_all=True)


def _day(text: str, field: str, wrong: dict[str, str]) -> date | None:
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        wrong[field] = "use the form 2026-03-31"
        return None
    if day < EARLIEST:
        wrong[field] = f"the earliest day is {EARLIEST}"
    return day
