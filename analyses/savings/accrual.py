"""Savings so far, which accrue day by day, and training run by training run.

*Self-reported*: a workload that is adopted and of which no training run has been recorded accrues
by assumption, its savings per year spread evenly over the days since its adoption::

    saved = savings per year * days / 365

*Verified*: from its first recorded training run on, it accrues by its recorded runs alone. A run
that took ``h`` GPU-hours in training steps would have taken ``h * s`` at the batch before, so on
the day it ended it saved::

    saved = h * (s - 1) * price per GPU-hour

with the analysis's speedup ``s``. So a day is never counted both ways, and what past months show
does not change when a job starts to report.

*Potential*: what a workload that is not adopted would have saved since its answer.

Each of them has an interval: the ends of the speedups' own, added up as if all erred alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from django.db.models import Count, F, FloatField, QuerySet, Sum, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Greatest, Least

from analyses.models import CountedSavings, RunSavings
from analyses.savings.period import Period

DAYS_PER_YEAR = 365
_MAX_POINTS = 120
_RECENT_DAYS = 90
"""Number of days whose recorded runs are projected to go on."""


@dataclass(frozen=True)
class Amount:
    """Money and GPU-hours saved.

    Attributes:
        usd_low, usd_high: The ends of the speedups' intervals, added up.
    """

    usd: float = 0.0
    usd_low: float = 0.0
    usd_high: float = 0.0
    gpu_hours: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.usd + other.usd,
            self.usd_low + other.usd_low,
            self.usd_high + other.usd_high,
            self.gpu_hours + other.gpu_hours,
        )

    def __sub__(self, other: Amount) -> Amount:
        return self + other * -1

    def __mul__(self, factor: float) -> Amount:
        return Amount(
            self.usd * factor, self.usd_low * factor, self.usd_high * factor,
            self.gpu_hours * factor,
        )  # fmt: skip


NONE = Amount()


@dataclass(frozen=True)
class Saved:
    """Savings in a period, realised and potential.

    Attributes:
        verified: Savings by recorded training runs.
        self_reported: Savings by the assumed runs of adopted workloads without recorded ones.
        potential: Possible savings of workloads that are not adopted.
        runs: The recorded training runs behind it.
    """

    verified: Amount = NONE
    self_reported: Amount = NONE
    potential: Amount = NONE
    runs: int = 0

    @property
    def realised(self) -> Amount:
        return self.verified + self.self_reported

    def __add__(self, other: Saved) -> Saved:
        return Saved(
            self.verified + other.verified,
            self.self_reported + other.self_reported,
            self.potential + other.potential,
            self.runs + other.runs,
        )

    def __sub__(self, other: Saved) -> Saved:
        return Saved(
            self.verified - other.verified,
            self.self_reported - other.self_reported,
            self.potential - other.potential,
            self.runs - other.runs,
        )


NOTHING = Saved()


Point = tuple[date, Saved]
"""A day, and the savings from the first day of the period to its end."""


@dataclass(frozen=True)
class Projection:
    """Savings projected to a day, if all goes on as now; none of this is measured.

    Attributes:
        until: The last day of the year.
        realised: Saved this year until then.
        to_come: The part of it that is still to come.
    """

    until: date
    realised: Amount
    to_come: Amount


@dataclass(frozen=True)
class Ledger:
    """Savings accrued by the end of each day, from the first day on which any could be.

    Attributes:
        first: The day of the first entry.
        totals: Accrued since the beginning, by the end of each day.
        rate: Accruing by assumption each day from the last on.
    """

    first: int
    totals: Sequence[Saved] = ()
    rate: Amount = NONE
    runs: Mapping[int, Saved] = field(default_factory=dict)

    def by(self, day: date) -> Saved:
        """Accrued by the end of a day."""
        index = min(day.toordinal() - self.first, len(self.totals) - 1)
        return self.totals[index] if index >= 0 else NOTHING

    def during(self, period: Period) -> Saved:
        return self.by(period.last) - self.by(period.first - timedelta(days=1))

    def started(self, period: Period) -> date:
        """The first day of a period on which anything could accrue."""
        if not self.totals:
            return period.first
        return min(max(period.first, date.fromordinal(self.first)), period.last)

    def points(self, period: Period) -> list[Point]:
        """Savings by the end of each day; in a long period, at regular intervals and the last day.

        The first point is the day before, with nothing.
        """
        first = self.started(period)
        before = first - timedelta(days=1)
        step = -(-((period.last - before).days) // _MAX_POINTS)
        days = range(period.last.toordinal(), before.toordinal(), -step)
        so_far = self.by(before)
        saved = [(day, self.by(day) - so_far) for day in map(date.fromordinal, reversed(days))]
        return [(before, NOTHING), *saved]

    def projected(self, today: date) -> Projection:
        """The year's end, if assumed runs go on, and recorded ones as in the last 90 days."""
        until = today.replace(month=12, day=31)
        year = Period("", today.replace(month=1, day=1), today)
        recent = [
            saved.verified
            for day, saved in self.runs.items()
            if today.toordinal() - _RECENT_DAYS < day <= today.toordinal()
        ]
        per_day = sum(recent, NONE) * (1 / _RECENT_DAYS) + self.rate
        to_come = per_day * (until - today).days
        return Projection(until, self.during(year).realised + to_come, to_come)


def ledger(counted: QuerySet[CountedSavings], runs: QuerySet[RunSavings], today: date) -> Ledger:
    """The savings of these workloads and training runs until today, by two queries."""
    rates: dict[int, list[tuple[bool, Amount]]] = {}
    for part in _rates(counted):
        kind, rate = part["is_realised"], _amount(part) * (1 / DAYS_PER_YEAR)
        begins, ends = part["since_day"] + 1, part["assumed_until"] + 1
        if begins < ends:
            rates.setdefault(begins, []).append((kind, rate))
            rates.setdefault(ends, []).append((kind, rate * -1))
    found = {part["day"]: Saved(_amount(part), runs=part["runs"]) for part in _days(runs)}
    last = today.toordinal()
    first = min((day for day in (*rates, *found) if day <= last), default=last + 1)
    so_far, realised, potential = NOTHING, NONE, NONE  # and the rates of both
    totals = []
    for day in range(first, last + 1):
        for is_realised, rate in rates.get(day, ()):
            if is_realised:
                realised += rate
            else:
                potential += rate
        so_far = Saved(
            so_far.verified,
            so_far.self_reported + realised,
            so_far.potential + potential,
            so_far.runs,
        )
        if day in found:
            so_far += found[day]
        totals.append(so_far)
    return Ledger(first, totals, realised, found)


def _rates(counted: QuerySet[CountedSavings]) -> Iterable[Mapping[str, Any]]:
    """Yearly savings by assumption, by first day and last: as many rows as days."""
    of_a_year = _sums("usd_per_year", "gpu_hours_per_year")
    accruing = counted.exclude(is_realised=False, usd_per_year=0).order_by()
    return accruing.values("is_realised", "since_day", "assumed_until").annotate(**of_a_year)


def _days(runs: QuerySet[RunSavings]) -> Iterable[Mapping[str, Any]]:
    return runs.order_by().values("day").annotate(**_sums("usd", "gpu_hours"), runs=Count("*"))


def saved_by(
    counted: QuerySet[CountedSavings],
    runs: QuerySet[RunSavings],
    columns: tuple[str, ...],
    period: Period,
) -> dict[tuple[Any, ...], Saved]:
    """The savings in a period, for each value of these columns, by two queries."""
    first, last = period.first.toordinal(), period.last.toordinal()
    end = Least(Value(last), F("assumed_until"))
    begin = Greatest(Value(first - 1), F("since_day"))
    days = Cast(Greatest(Value(0), end - begin), FloatField())
    assumed = (
        counted.filter(since_day__lt=last)
        .order_by()
        .values(*columns, "is_realised")
        .annotate(**_sums("usd_per_year", "gpu_hours_per_year", days / Value(float(DAYS_PER_YEAR))))
    )
    found: dict[tuple[Any, ...], Saved] = {}
    for part in assumed:
        amount = _amount(part)
        saved = Saved(self_reported=amount) if part["is_realised"] else Saved(potential=amount)
        key = tuple(part[column] for column in columns)
        found[key] = found.get(key, NOTHING) + saved
    reported = (
        runs.filter(day__range=(first, last))
        .order_by()
        .values(*columns)
        .annotate(**_sums("usd", "gpu_hours"), runs=Count("*"))
    )
    for part in reported:
        key = tuple(part[column] for column in columns)
        found[key] = found.get(key, NOTHING) + Saved(_amount(part), runs=part["runs"])
    return found


def saved_by_workload(counted: Collection[CountedSavings], period: Period) -> dict[str, Saved]:
    """The savings of each of these workloads in a period, by its key; one query."""
    first, last = period.first.toordinal(), period.last.toordinal()
    runs = RunSavings.objects.filter(workload_key__in=[row.workload_key for row in counted])
    by_runs = saved_by(CountedSavings.objects.none(), runs, ("workload_key",), period)
    found = {}
    for row in counted:
        days = min(last, row.assumed_until) - max(first - 1, row.since_day)
        amount = Amount(
            row.usd_per_year, row.usd_per_year_low, row.usd_per_year_high, row.gpu_hours_per_year
        ) * (max(0, days) / DAYS_PER_YEAR)
        assumed = Saved(self_reported=amount) if row.is_realised else Saved(potential=amount)
        found[row.workload_key] = assumed + by_runs.get((row.workload_key,), NOTHING)
    return found


def _sums(usd: str, hours: str, share: Combinable | None = None) -> dict[str, Sum]:
    """Sums of a column in USD (or a share of it), of the ends of its interval, and of GPU-hours."""
    columns = {"usd": usd, "low": f"{usd}_low", "high": f"{usd}_high", "hours": hours}
    return {
        f"sum_{name}": Sum(column if share is None else F(column) * share)
        for name, column in columns.items()
    }


def _amount(sums: Mapping[str, Any]) -> Amount:
    return Amount(sums["sum_usd"], sums["sum_low"], sums["sum_high"], sums["sum_hours"])
