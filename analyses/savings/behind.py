"""The analyses behind a total, each with what its savings rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import F, FloatField, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from analyses.models import Analysis
from analyses.savings.selection import MONTH

_ASSUMED = ("hours_per_run", "runs_per_year", "price_per_hour_usd")


@dataclass(frozen=True)
class Behind:
    """One analysis that counts, and its assumptions; those are ``None`` without a speedup."""

    analysis: Analysis
    kind: str
    month: str
    hours_per_run: float | None
    runs_per_year: float | None
    price_per_hour_usd: float | None


def with_assumptions(counting: QuerySet[Analysis]) -> QuerySet[Analysis, Any]:
    """Those that save most first, with what they assume; without the long JSON."""
    assumed = {
        f"assumed_{name}": Cast(KT(f"result__savings__{name}"), FloatField()) for name in _ASSUMED
    }
    order = (F("usd_per_year").desc(nulls_last=True), "-pk")
    return counting.annotate(**assumed).defer("request", "result").order_by(*order)


def behind(analyses: Iterable[Any]) -> Iterator[Behind]:
    """What :func:`with_assumptions` gave, as pages and CSV show it."""
    for analysis in analyses:
        yield Behind(
            analysis=analysis,
            kind="realised" if analysis.adopted_at else "potential",
            month=f"{analysis.month:{MONTH}}",
            **{name: getattr(analysis, f"assumed_{name}") for name in _ASSUMED},
        )
