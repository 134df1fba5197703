"""The period of a total: until today, from one day to another, or one of the calendar."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from enum import IntEnum, StrEnum

from engine.core.errors import InvalidInput

MIN_DAY = date(2000, 1, 1)
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
    begin, end = days["from"] or MIN_DAY, min(days["to"] or today, today)
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


_CALENDAR = re.compile(r"(\d{4})(?:-(0[1-9]|1[0-2])|-Q([1-4]))?", re.ASCII)


class Span(IntEnum):
    """The calendar's periods, and their length in months."""

    MONTH = 1
    QUARTER = 3
    YEAR = 12


@dataclass(frozen=True)
class CalendarPeriod:
    """A month, a quarter or a year of the calendar.

    Attributes:
        first: Its first day.
    """

    span: Span
    first: date

    @classmethod
    def parse(cls, text: str) -> CalendarPeriod:
        """Read ``2026-03``, ``2026-Q1`` or ``2026``.

        Raises:
            ValueError: It is none of them.
        """
        found = _CALENDAR.fullmatch(text)
        if not found:
            raise ValueError("use the form 2026-03, 2026-Q1 or 2026")
        year, month, quarter = found.groups()
        if month:
            return cls(Span.MONTH, date(int(year), int(month), 1))
        if quarter:
            return cls(Span.QUARTER, date(int(year), 3 * int(quarter) - 2, 1))
        return cls(Span.YEAR, date(int(year), 1, 1))

    @classmethod
    def around(cls, day: date, span: Span) -> CalendarPeriod:
        """The one that a day is in."""
        return cls(span, day.replace(month=span * ((day.month - 1) // span) + 1, day=1))

    def __str__(self) -> str:
        """As in an address."""
        if self.span is Span.MONTH:
            return f"{self.first:%Y-%m}"
        return f"{self.first:%Y}" + (f"-Q{self._quarter}" if self.span is Span.QUARTER else "")

    @property
    def name(self) -> str:
        if self.span is Span.MONTH:
            return f"{self.first:%B %Y}"
        return f"{f'Q{self._quarter} ' if self.span is Span.QUARTER else ''}{self.first:%Y}"

    @property
    def _quarter(self) -> int:
        return self.first.month // 3 + 1

    @property
    def last(self) -> date:
        month = self.first.month + self.span - 1
        return self.first.replace(month=month, day=monthrange(self.first.year, month)[1])

    def until(self, today: date) -> Period:
        """Its days, until today if that is in it."""
        return Period(self.name, self.first, max(self.first, min(self.last, today)))

    def months(self, today: date) -> list[CalendarPeriod]:
        """Its months that have begun."""
        first, end = self.first, min(self.last, today)
        starts = (first.replace(month=first.month + number) for number in range(self.span))
        return [CalendarPeriod(Span.MONTH, start) for start in starts if start <= end]


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
            return Period("since the first analysis", MIN_DAY, today, is_all=True)


def _day(text: str, field: str, wrong: dict[str, str]) -> date | None:
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        wrong[field] = "use the form 2026-03-31"
        return None
    if day < MIN_DAY:
        wrong[field] = f"the earliest day is {MIN_DAY}"
    return day
