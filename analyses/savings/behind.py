"""The analyses behind a total, each with what its savings rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import FloatField, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from analyses.figures import speedup_by
from analyses.models import Analysis, CountedSavings
from analyses.savings.selection import MONTH
from analyses.savings.verified import by_a_training

CHUNK = 100
"""Analyses read at a time: a long file does not lie in memory, and its first lines come soon."""

_ASSUMED = ("hours_per_run", "runs_per_year", "price_per_hour_usd")


@dataclass(frozen=True)
class Behind:
    """One analysis that counts, and its assumptions; those are ``None`` without a speedup.

    Attributes:
        is_verified: Whether it is realised, and a training verifies it.
    """

    analysis: Analysis
    kind: str
    is_verified: bool
    month: str
    hours_per_run: float | None
    runs_per_year: float | None
    price_per_hour_usd: float | None

    @property
    def speedup(self) -> str:
        """In words, as other lists have it."""
        assumed = (self.hours_per_run, self.runs_per_year, self.price_per_hour_usd)
        return speedup_by(self.analysis, assumed)


def largest_first(counted: QuerySet[CountedSavings]) -> QuerySet[CountedSavings]:
    """Those that save most first, and the newest of those that save the same."""
    return counted.order_by("-usd_per_year", "-analysis_id").only("month", "is_realised")


def behind(counted: Iterable[CountedSavings]) -> Iterator[Behind]:
    """What pages and CSV show of each, in the same order; without the long JSON."""
    rows = iter(counted)
    while chunk := list(islice(rows, CHUNK)):
        analyses = _analyses().in_bulk([row.pk for row in chunk])
        for row in chunk:
            analysis: Any = analyses.get(row.pk)  # with the annotations
            if analysis:  # else it has been deleted this moment
                yield Behind(
                    analysis=analysis,
                    kind="realised" if row.is_realised else "potential",
                    is_verified=row.is_realised and analysis.is_verified,
                    month=f"{row.month:{MONTH}}",
                    **{name: getattr(analysis, f"assumed_{name}") for name in _ASSUMED},
                )


def _analyses() -> QuerySet[Analysis, Any]:
    found: dict[str, Any] = {
        f"assumed_{name}": Cast(KT(f"result__savings__{name}"), FloatField()) for name in _ASSUMED
    }
    found["is_verified"] = by_a_training()
    return Analysis.objects.select_related("owner").annotate(**found).defer("request", "result")
