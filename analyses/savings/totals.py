"""The lab's savings, added up in the database.

A workload on a GPU counts once for each of its owners: by the newest of their analyses of it that
is adopted, else by the newest. So asking again changes nothing, and whoever gains nothing saves 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Aggregate, Count, DateTimeField, F, Max, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, TruncMonth

from analyses.models import Analysis, FigureSource, Status

KINDS: dict[str, Q] = {
    "realised": Q(adopted_at__isnull=False),
    "potential": Q(adopted_at__isnull=True),
}
"""Savings are realised where the recommendation is adopted, and potential until then."""

DIMENSIONS: dict[str, tuple[str, ...]] = {
    "member": ("owner__username",),
    "model": ("model",),
    "gpu": ("gpu", "measured_gpu"),
    "month": ("month",),
}
"""What totals are taken apart by, and the columns of each."""


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


@dataclass(frozen=True)
class Row:
    """The totals of one member, model, GPU or month; ``key`` has its columns."""

    key: tuple[Any, ...]
    totals: Totals


def counted(analyses: QuerySet[Analysis]) -> QuerySet[Analysis]:
    """Those that count, of all that there are; with the ``month`` each counts in.

    It is the month of the adoption, or of the answer where nothing is adopted.
    """
    succeeded = analyses.filter(status=Status.SUCCEEDED).order_by()
    one_each = succeeded.values("owner", "workload_key").annotate(
        counted=Coalesce(Max("pk", filter=KINDS["realised"]), Max("pk"))
    )
    since = Coalesce("adopted_at", "finished_at", "queued_at", output_field=DateTimeField())
    return analyses.filter(pk__in=one_each.values("counted")).annotate(month=TruncMonth(since))


def totals(counting: QuerySet[Analysis]) -> Totals:
    """The sums over analyses that count."""
    return _totals(counting.aggregate(**_sums()))


def totals_by(counting: QuerySet[Analysis], dimension: str) -> Iterator[Row]:
    """The sums for each member, model, GPU or month; the largest first, months newest first."""
    columns = DIMENSIONS[dimension]
    largest_first = ((F("realised_usd") + F("potential_usd")).desc(), *columns)
    order = ("-month",) if dimension == "month" else largest_first
    for row in counting.values(*columns).annotate(**_sums()).order_by(*order).iterator():
        yield Row(tuple(row[column] for column in columns), _totals(row))


def _sums() -> dict[str, Aggregate | Coalesce]:
    measured = Q(source=FigureSource.MEASURED)
    sums: dict[str, Aggregate | Coalesce] = {}
    for kind, of_kind in KINDS.items():
        sums |= {
            f"{kind}_usd": Coalesce(Sum("usd_per_year", filter=of_kind), 0.0),
            f"{kind}_hours": Coalesce(Sum("gpu_hours_per_year", filter=of_kind), 0.0),
            f"{kind}_count": Count("pk", filter=of_kind),
            f"{kind}_measured_usd": Coalesce(Sum("usd_per_year", filter=of_kind & measured), 0.0),
            f"{kind}_measured_count": Count("pk", filter=of_kind & measured),
        }
    return sums


def _totals(row: Mapping[str, Any]) -> Totals:
    return Totals(*(_total(row, kind) for kind in KINDS))


def _total(row: Mapping[str, Any], kind: str) -> Total:
    count, measured = row[f"{kind}_count"], row[f"{kind}_measured_count"]
    occurring = {FigureSource.MEASURED: measured, FigureSource.PREDICTED: count - measured}
    return Total(
        usd_per_year=row[f"{kind}_usd"],
        gpu_hours_per_year=row[f"{kind}_hours"],
        workloads=count,
        measured_usd_per_year=row[f"{kind}_measured_usd"],
        sources=tuple(source.value for source, found in occurring.items() if found),
    )
