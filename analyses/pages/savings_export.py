"""The CSV files of the savings page: exactly what it shows, unrounded."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from analyses.formatting import gpu_of, model_name
from analyses.savings.accrual import Point, Saved
from analyses.savings.breakdown import KINDS, BreakdownRow, CountedAnalysis, Total
from analyses.savings.selection import label_of, value_of
from memorymark_site.operations.csv_text import Cell, csv_file, csv_lines
from memorymark_site.operations.downloads import download

_SAVED_COLUMNS = (
    "saved_verified_usd", "saved_self_reported_usd", "saved_usd_low", "saved_usd_high",
    "saved_gpu_hours", "recorded_runs", "potential_usd",
)  # fmt: skip
_TOTAL_COLUMNS = (
    "usd_per_year", "usd_per_year_low", "usd_per_year_high", "gpu_hours_per_year",
    "kwh_per_year_predicted", "kg_co2e_per_year_predicted", "workloads", "speedup_sources",
)  # fmt: skip
_ANALYSIS_COLUMNS = (
    "analysis", "owner", "member", "model", "gpu", "month", "savings", "verified",
    "current_batch_size", "recommended_batch_size", "speedup", "speedup_source",
    "counts_at_low_end", "hours_per_run_assumed", "runs_per_year_assumed",
    "price_per_hour_usd_assumed", "gpu_hours_per_year", "usd_per_year", "usd_per_year_low",
    "usd_per_year_high", "grid_co2e_grams_per_kwh_assumed", "kwh_per_year_predicted",
    "kg_co2e_per_year_predicted", *_SAVED_COLUMNS,
)  # fmt: skip


def totals_csv(dimension: str, rows: Iterable[BreakdownRow]) -> StreamingHttpResponse:
    kinds = [f"{kind}_{name}" for kind in KINDS for name in _TOTAL_COLUMNS]
    lines = (
        [
            label_of(dimension, value_of(dimension, row.key)),
            *_saved_cells(row.saved),
            *(cell for total in row.totals.by_kind.values() for cell in _cells(total)),
        ]
        for row in rows
    )
    return csv_file(f"savings-by-{dimension}.csv", [dimension, *_SAVED_COLUMNS, *kinds], lines)


def analyses_csv(request: HttpRequest, analyses: Iterable[CountedAnalysis]) -> HttpResponseBase:
    lines = csv_lines(chain([_ANALYSIS_COLUMNS], map(_line, analyses)))
    return download(request, lines, kind="text/csv; charset=utf-8", name="savings-analyses.csv")


def over_time_csv(points: Iterable[Point]) -> StreamingHttpResponse:
    lines = ([day.isoformat(), *_saved_cells(saved)] for day, saved in points)
    return csv_file("savings-over-time.csv", ["by_end_of", *_SAVED_COLUMNS], lines)


def report_csv(of: str, rows: Iterable[tuple[str, str, Saved]]) -> StreamingHttpResponse:
    lines = ([month, member, *_saved_cells(saved)] for month, member, saved in rows)
    return csv_file(f"savings-{of}.csv", ["month", "member", *_SAVED_COLUMNS], lines)


def _saved_cells(saved: Saved) -> list[Cell]:
    realised = saved.realised
    return [
        saved.verified.usd, saved.self_reported.usd, realised.usd_low, realised.usd_high,
        realised.gpu_hours, saved.runs, saved.potential.usd,
    ]  # fmt: skip


def _cells(total: Total) -> list[Cell]:
    sources = " and ".join(total.sources)
    return [
        total.usd_per_year, total.usd_per_year_low, total.usd_per_year_high,
        total.gpu_hours_per_year, total.kwh_per_year, total.kg_co2e_per_year, total.workloads,
        sources,
    ]  # fmt: skip


def _line(row: CountedAnalysis) -> list[Cell]:
    analysis, counted = row.analysis, row.counted
    return [
        analysis.pk, analysis.owner.get_username(), counted.member.get_username(),
        model_name(analysis.model), gpu_of(analysis), row.month, row.kind,
        _yes_or_no(counted.is_verified), analysis.current_batch_size,
        analysis.recommended_batch_size, analysis.speedup, analysis.source,
        _yes_or_no(counted.at_low_end), row.hours_per_run, row.runs_per_year,
        row.price_per_hour_usd, counted.gpu_hours_per_year, counted.usd_per_year,
        counted.usd_per_year_low, counted.usd_per_year_high, row.grid_co2e_grams_per_kwh,
        counted.kwh_per_year, counted.kg_co2e_per_year, *_saved_cells(row.saved),
    ]  # fmt: skip


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"
