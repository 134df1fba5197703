"""The lab's savings, added up in the database.

What counts is written down beforehand, by :mod:`analyses.savings.counting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, QuerySet, Sum

from analyses.models import CountedSavings, FigureSource

KINDS = {"realised": True, "potential": False}
"""Savings are realised where the recommendation is adopted, and potential until then."""

DIMENSIONS: dict[str, tuple[str, ...]] = {
    "member": ("owner",),
    "model": ("model",),
    "gpu": ("gpu", "measured_gpu"),
    "month": ("month",),
}
"""What totals are taken apart by, and the columns of each."""

_Sum = Mapping[str, Any]
"""One group of what counts: its columns, and ``usd``, ``hours`` and ``count`` of it."""


@dataclass(frozen=True)
class Total:
    """Savings of one kind.

    Attributes:
        workloads: How many count.
        measured_usd_per_year: The share of the money whose speedup was measured.
        sources: Where the speedups come from.
    """

    usd_per_year: float
    gpu_hours_per_year: float
    workloads: int
    measured_usd_per_year: float
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Totals:
    """Realised and potential savings, apart; they never overlap."""

    realised: Total
    potential: Total

    @property
    def usd_per_year(self) -> float:
        """Of both."""
        return self.realised.usd_per_year + self.potential.usd_per_year

    @property
    def workloads(self) -> int:
        """How many count in both."""
        return self.realised.workloads + self.potential.workloads


@dataclass(frozen=True)
class Row:
    """The totals of one member, model, GPU or month; ``key`` has its columns."""

    key: tuple[Any, ...]
    totals: Totals


def totals_by(counted: QuerySet[CountedSavings], dimension: str) -> list[Row]:
    """The sums for each member, model, GPU or month; the largest first, months newest first."""
    columns = DIMENSIONS[dimension]
    parts: dict[tuple[Any, ...], list[_Sum]] = {}
    for part in _sums(counted, *columns):
        parts.setdefault(tuple(part[column] for column in columns), []).append(part)
    if dimension == "member":
        parts = _by_name(parts)
    rows = [Row(key, _totals(found)) for key, found in sorted(parts.items())]
    if dimension == "month":
        return rows[::-1]
    return sorted(rows, key=lambda row: -row.totals.usd_per_year)


def totals(counted: QuerySet[CountedSavings]) -> Totals:
    """The sums over all that is given; by way of the months, which are few and have an index."""
    return totals_of(totals_by(counted, "month"))


def totals_of(rows: Iterable[Row]) -> Totals:
    """The sums over rows, without another look into the database."""
    found = [row.totals for row in rows]
    return Totals(
        _added(totals.realised for totals in found), _added(totals.potential for totals in found)
    )


def _by_name(parts: Mapping[tuple[Any, ...], list[_Sum]]) -> dict[tuple[Any, ...], list[_Sum]]:
    """The same by the members' names: looked up once each, not joined to each row."""
    members = User.objects.in_bulk([owner for (owner,) in parts])
    return {(members[owner].get_username(),): sums for (owner,), sums in parts.items()}


def _sums(counted: QuerySet[CountedSavings], *columns: str) -> Iterable[_Sum]:
    """A sum for each value of the columns, kind and source: no more than a few for each row."""
    sums: Iterable[_Sum] = (
        counted.order_by()
        .values(*columns, "is_realised", "source")
        .annotate(usd=Sum("usd_per_year"), hours=Sum("gpu_hours_per_year"), count=Count("*"))
    )
    return sums


def _totals(sums: Iterable[_Sum]) -> Totals:
    parts = list(sums)
    return Totals(
        *(
            _added(_total(part) for part in parts if part["is_realised"] is kind)
            for kind in KINDS.values()
        )
    )


def _total(part: _Sum) -> Total:
    usd = part["usd"]
    return Total(
        usd_per_year=usd,
        gpu_hours_per_year=part["hours"],
        workloads=part["count"],
        measured_usd_per_year=usd if part["source"] == FigureSource.MEASURED else 0.0,
        sources=(part["source"],),
    )


def _added(parts: Iterable[Total]) -> Total:
    found = list(parts)
    return Total(
        usd_per_year=fsum(part.usd_per_year for part in found),
        gpu_hours_per_year=fsum(part.gpu_hours_per_year for part in found),
        workloads=sum(part.workloads for part in found),
        measured_usd_per_year=fsum(part.measured_usd_per_year for part in found),
        sources=tuple(sorted({source for part in found for source in part.sources})),
    )
