"""The lab's analyses by the week they were submitted in, and by status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db.models import CharField, Count, QuerySet
from django.db.models.functions import Cast, Concat, Substr

from analyses.models import Analysis, StatusGroup
from analyses.selectors import kept_if_large

SHOWN_WEEKS = 13
"""A quarter of a year."""

_DAY = len("2026-03-31")


@dataclass(frozen=True)
class Week:
    """One week (UTC).

    Attributes:
        monday: Its first day.
        counts: Analyses by status; 0 for those there are none of.
    """

    monday: date
    counts: Mapping[StatusGroup, int]


def weeks_until(analyses: QuerySet[Analysis], today: date) -> list[Week]:
    """The last :data:`SHOWN_WEEKS` weeks, this one last; counted in an index."""
    this = today - timedelta(days=today.weekday())
    mondays = [this - timedelta(weeks=back) for back in reversed(range(SHOWN_WEEKS))]
    counted: dict[date, Counter[StatusGroup]] = {monday: Counter() for monday in mondays}
    begin = datetime.combine(mondays[0], time(), tzinfo=UTC)
    # The day is cut from the text of the time, as SQLite would call back into Python to truncate
    # it. Day and status are one text, as it would scan all of an index that begins with the status.
    day = Substr(Cast("queued_at", CharField()), 1, _DAY)
    recent = analyses.filter(queued_at__gte=begin)
    rows = recent.order_by().values_list(Concat(day, "status")).annotate(Count("pk"))
    for day_and_status, count in kept_if_large(recent, "weeks", lambda: list(rows)):
        on, status = date.fromisoformat(day_and_status[:_DAY]), day_and_status[_DAY:]
        week = counted.get(on - timedelta(days=on.weekday()), Counter())
        week[StatusGroup.of(status)] += count
    return [
        Week(monday, {group: counts[group] for group in StatusGroup})
        for monday, counts in counted.items()
    ]
