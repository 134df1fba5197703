"""Savings as CSV, one line for each row that the page shows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from django.http import StreamingHttpResponse

from analyses.csv_text import Cell, csv_lines
from analyses.models import Analysis
from analyses.question import gpu_of, model_name
from analyses.savings.behind import Behind
from analyses.savings.selection import label_of, value_of
from analyses.savings.totals import KINDS, Row, Total

_TOTAL_COLUMNS = ("usd_per_year", "gpu_hours_per_year", "workloads", "speedup_sources")
_ANALYSIS_COLUMNS = (
    "analysis", "member", "model", "gpu", "month", "savings", "verified", "current_batch_size",
    "recommended_batch_size", "speedup", "speedup_source", "hours_per_run_assumed",
    "runs_per_year_assumed", "price_per_hour_usd_assumed", "gpu_hours_per_year", "usd_per_year",
)  # fmt: skip


def totals_csv(dimension: str, rows: Iterable[Row]) -> StreamingHttpResponse:
    """The totals by member, model, GPU or month."""
    head = [dimension, *(f"{kind}_{name}" for kind in KINDS for name in _TOTAL_COLUMNS)]
    lines = (
        [
            label_of(dimension, value_of(dimension, row.key)),
            *_cells(row.totals.realised),
            *_cells(row.totals.potential),
        ]
        for row in rows
    )
    return _csv(f"savings-by-{dimension}.csv", head, lines)


def analyses_csv(behind: Iterable[Behind]) -> StreamingHttpResponse:
    """The analyses behind a total."""
    return _csv("savings-analyses.csv", _ANALYSIS_COLUMNS, map(_line, behind))


def _cells(total: Total) -> list[Cell]:
    sources = " and ".join(total.sources)
    return [total.usd_per_year, total.gpu_hours_per_year, total.workloads, sources]


def _line(behind: Behind) -> list[Cell]:
    analysis: Analysis = behind.analysis
    return [
        analysis.pk, analysis.owner.get_username(), model_name(analysis.model), gpu_of(analysis),
        behind.month, behind.kind, "yes" if behind.is_verified else "no",
        analysis.current_batch_size, analysis.recommended_batch_size,
        analysis.speedup, analysis.source, behind.hours_per_run, behind.runs_per_year,
        behind.price_per_hour_usd, analysis.gpu_hours_per_year or 0.0, analysis.usd_per_year or 0.0,
    ]  # fmt: skip


def _csv(name: str, head: Iterable[str], lines: Iterable[Iterable[Cell]]) -> StreamingHttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    text = csv_lines(chain([head], lines))
    return StreamingHttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)
