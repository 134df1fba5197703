"""The lab's savings by member, model, GPU, project or month, and the analyses behind each total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import fsum
from types import MappingProxyType
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, FloatField, QuerySet, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from analyses.models import Analysis, CountedSavings, FigureSource, Project
from analyses.savings.accrual import NOTHING, Saved, saved_by_workload
from analyses.savings.period import Period
from analyses.selectors import with_decision

KINDS = {"realised": True, "potential": False}
"""Savings are realised where the recommendation is adopted, and potential until then."""

VERIFIED, SELF_REPORTED = "verified", "self_reported"
"""The parts of what is realised. A workload is in both if its first training run was recorded some
time after its adoption."""

FILTERED_KINDS = (*KINDS, VERIFIED, SELF_REPORTED)
"""Filters of savings."""

MONTH = "%Y-%m"
"""The format of a month in an address."""

CHUNK = 100
"""Analyses read at a time, so that a long CSV starts at once and is never whole in memory."""

_ASSUMED = ("hours_per_run", "runs_per_year", "price_per_hour_usd")
_GRID = "grid_co2e_grams_per_kwh"

DIMENSIONS: dict[str, tuple[str, ...]] = {
    "member": ("member",),
    "model": ("model",),
    "gpu": ("gpu", "measured_gpu"),
    "project": ("project",),
    "month": ("month",),
}
"""The dimensions of a breakdown, and the columns of each."""

_Sum = Mapping[str, Any]
"""One group of counted savings: its columns, and their ``usd``, ``hours`` and ``count``."""


@dataclass(frozen=True)
class Total:
    """Savings of one kind.

    Attributes:
        usd_per_year_low, usd_per_year_high: The ends of the speedups' intervals, added up.
        kwh_per_year, kg_co2e_per_year: For workloads whose GPU's power is known; ``None`` where
            there is none.
        measured_usd_per_year: The part of the money whose speedup was measured.
        sources: Sources of the speedups.
    """

    usd_per_year: float
    usd_per_year_low: float
    usd_per_year_high: float
    gpu_hours_per_year: float
    kwh_per_year: float | None
    kg_co2e_per_year: float | None
    workloads: int
    measured_usd_per_year: float
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Totals:
    """Realised and potential savings, which never overlap.

    Attributes:
        verified: The part of the realised ones that a recorded training run has verified.
    """

    realised: Total
    potential: Total
    verified: Total

    @property
    def usd_per_year(self) -> float:
        return self.realised.usd_per_year + self.potential.usd_per_year

    @property
    def by_kind(self) -> dict[str, Total]:
        return {"realised": self.realised, "potential": self.potential}

    @property
    def workloads(self) -> int:
        return self.realised.workloads + self.potential.workloads


@dataclass(frozen=True)
class BreakdownRow:
    """The totals of one member, model, GPU, project or month, and what they saved in a period.

    Attributes:
        key: Its columns; a member or project by name, which is empty for no project.
    """

    key: tuple[Any, ...]
    totals: Totals
    saved: Saved = NOTHING


def totals_by(
    counted: QuerySet[CountedSavings],
    dimension: str,
    saved: Mapping[tuple[Any, ...], Saved] = MappingProxyType({}),
) -> list[BreakdownRow]:
    """A row for each member, model, GPU or month; the largest first, months newest first.

    Args:
        counted: The savings to add up.
        dimension: One of :data:`DIMENSIONS`.
        saved: Savings by the dimension's columns, from :func:`~analyses.savings.accrual.saved_by`.
    """
    columns = DIMENSIONS[dimension]
    parts: dict[tuple[Any, ...], list[_Sum]] = {}
    for part in _sums(counted, *columns):
        parts.setdefault(tuple(part[column] for column in columns), []).append(part)
    named = _NAMED[dimension](parts) if dimension in _NAMED else {key: key for key in parts}
    rows = [
        BreakdownRow(named[key], _totals(found), saved.get(key, NOTHING))
        for key, found in parts.items()
    ]
    rows.sort(key=lambda row: row.key)
    if dimension == "month":
        return rows[::-1]
    return sorted(rows, key=lambda row: -row.totals.usd_per_year)


def totals(counted: QuerySet[CountedSavings]) -> Totals:
    """The sums over all of it; by way of the months, which are few and have an index."""
    return totals_of(totals_by(counted, "month"))


def totals_of(rows: Iterable[BreakdownRow]) -> Totals:
    """The sums over rows, without another query."""
    found = [row.totals for row in rows]
    return Totals(
        realised=_added(totals.realised for totals in found),
        potential=_added(totals.potential for totals in found),
        verified=_added(totals.verified for totals in found),
    )


def _member_names(keys: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[str]]:
    """User names by member, looked up once per member instead of joined to every row."""
    members = User.objects.in_bulk([member for (member,) in keys])
    return {(pk,): (member.get_username(),) for pk, member in members.items()}


def _project_names(keys: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[str]]:
    """Names by project; a project that was deleted a moment ago has none any more."""
    pks = [project for (project,) in keys]
    found = Project.objects.in_bulk([pk for pk in pks if pk is not None])
    return {(pk,): (found[pk].name if pk in found else "",) for pk in pks}


_NAMED = {"member": _member_names, "project": _project_names}
"""Dimensions whose columns are keys of other tables."""


def _sums(counted: QuerySet[CountedSavings], *columns: str) -> Iterable[_Sum]:
    """A sum for each value of the columns, kind and source."""
    sums: Iterable[_Sum] = (
        counted.order_by()
        .values(*columns, "is_realised", "is_verified", "source")
        .annotate(
            usd=Sum("usd_per_year"),
            low=Sum("usd_per_year_low"),
            high=Sum("usd_per_year_high"),
            hours=Sum("gpu_hours_per_year"),
            kwh=Sum("kwh_per_year"),
            kg_co2e=Sum("kg_co2e_per_year"),
            count=Count("*"),
        )
    )
    return sums


def _totals(sums: Iterable[_Sum]) -> Totals:
    parts = list(sums)
    return Totals(
        realised=_added(_total(part) for part in parts if part["is_realised"]),
        potential=_added(_total(part) for part in parts if not part["is_realised"]),
        verified=_added(_total(part) for part in parts if part["is_verified"]),
    )


def _total(part: _Sum) -> Total:
    usd = part["usd"]
    return Total(
        usd_per_year=usd,
        usd_per_year_low=part["low"],
        usd_per_year_high=part["high"],
        gpu_hours_per_year=part["hours"],
        kwh_per_year=part["kwh"],
        kg_co2e_per_year=part["kg_co2e"],
        workloads=part["count"],
        measured_usd_per_year=usd if part["source"] == FigureSource.MEASURED else 0.0,
        sources=(part["source"],),
    )


def _added(parts: Iterable[Total]) -> Total:
    found = list(parts)
    return Total(
        usd_per_year=fsum(part.usd_per_year for part in found),
        usd_per_year_low=fsum(part.usd_per_year_low for part in found),
        usd_per_year_high=fsum(part.usd_per_year_high for part in found),
        gpu_hours_per_year=fsum(part.gpu_hours_per_year for part in found),
        kwh_per_year=_sum_of_known(part.kwh_per_year for part in found),
        kg_co2e_per_year=_sum_of_known(part.kg_co2e_per_year for part in found),
        workloads=sum(part.workloads for part in found),
        measured_usd_per_year=fsum(part.measured_usd_per_year for part in found),
        sources=tuple(sorted({source for part in found for source in part.sources})),
    )


def _sum_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) if known else None


@dataclass(frozen=True)
class CountedAnalysis:
    """One analysis behind a total, and its assumptions; those are ``None`` without a speedup.

    Attributes:
        counted: Its row of counted savings.
        saved: Savings in the period.
        grid_co2e_grams_per_kwh: ``None`` too where the GPU's power is not known.
    """

    analysis: Analysis
    counted: CountedSavings
    saved: Saved
    hours_per_run: float | None
    runs_per_year: float | None
    price_per_hour_usd: float | None
    grid_co2e_grams_per_kwh: float | None

    @property
    def kind(self) -> str:
        return "realised" if self.counted.is_realised else "potential"

    @property
    def month(self) -> str:
        return f"{self.counted.month:{MONTH}}"


def largest_first(counted: QuerySet[CountedSavings]) -> QuerySet[CountedSavings]:
    """Order by savings, largest first, and the newest first where they are equal."""
    return counted.order_by("-usd_per_year", "-analysis_id").select_related("member")


def counted_analyses(
    counted: Iterable[CountedSavings], period: Period
) -> Iterator[CountedAnalysis]:
    """The analyses of these rows, in the same order, with what they saved in a period."""
    rows = iter(counted)
    while chunk := list(islice(rows, CHUNK)):
        analyses = with_assumptions().in_bulk([row.pk for row in chunk])
        saved = saved_by_workload(chunk, period)
        for row in chunk:
            analysis: Any = analyses.get(row.pk)  # with the annotations
            if analysis:  # else it was deleted a moment ago
                yield CountedAnalysis(
                    analysis=analysis,
                    counted=row,
                    saved=saved[row.workload_key],
                    **{name: getattr(analysis, f"assumed_{name}") for name in (*_ASSUMED, _GRID)},
                )


def with_assumptions() -> QuerySet[Analysis, Any]:
    """Analyses with what they assume, such as ``assumed_hours_per_run``."""
    found: dict[str, Any] = {
        f"assumed_{name}": Cast(KT(f"result__savings__{name}"), FloatField()) for name in _ASSUMED
    }
    found[f"assumed_{_GRID}"] = Cast(KT(f"result__savings__energy__{_GRID}"), FloatField())
    analyses = with_decision(Analysis.objects.select_related("owner"))
    return analyses.annotate(**found).defer("request", "result")
