"""How much of what is realised a training has verified; the rest is on its member's word."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Exists, OuterRef, QuerySet, Sum

from analyses.models import CountedSavings, Training


@dataclass(frozen=True)
class Verified:
    """The part of the realised savings whose analyses a training verifies."""

    usd_per_year: float
    workloads: int


def by_a_training() -> Exists:
    """Whether a training verifies the analysis, or what counts by it, of a query."""
    return Exists(Training.objects.filter(analysis=OuterRef("pk"), verifies=True))


def verified(counted: QuerySet[CountedSavings]) -> Verified:
    """The sums over what counts as realised and is verified, starting from the trainings."""
    verifying = Training.objects.filter(verifies=True).values("analysis")
    found = (
        counted.filter(pk__in=verifying, is_realised=True)
        .order_by()
        .aggregate(usd=Sum("usd_per_year", default=0.0), count=Count("pk"))
    )
    return Verified(found["usd"], found["count"])
