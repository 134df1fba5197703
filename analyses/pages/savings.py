"""The savings page and its CSV files, an estimate under other assumptions, and adopting."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import replace_url

from analyses import services
from analyses.formatting import gpu_of, model_name
from analyses.models import Analysis, CountedSavings
from analyses.pages.access import MemberRequest, find_analysis
from analyses.pages.ladder import ladder_of
from analyses.permissions import may_change
from analyses.savings.breakdown import (
    DIMENSIONS,
    KINDS,
    CountedAnalysis,
    Row,
    Total,
    counted_analyses,
    largest_first,
    totals_by,
    totals_of,
    verified,
)
from analyses.savings.estimate import estimate_of
from analyses.savings.selection import Selection, label_of, value_of
from analyses.selectors import savings_visible_to
from analyses.stored_result import result_of
from engine.errors import InvalidInput
from memorymark_site.operations.csv_text import Cell, csv_lines

SHOWN_ROWS = 50
"""Of members, models, GPUs or months; the CSV has them all."""

PAGE_SIZE = 25


class CountedPaginator(Paginator[CountedSavings]):
    """Pages of rows whose number is known already."""

    def __init__(self, counted: QuerySet[CountedSavings], count: int) -> None:
        super().__init__(counted, PAGE_SIZE)
        self.count = count  # instead of a query


@require_safe
def savings(request: MemberRequest) -> HttpResponse:
    """The lab's totals, broken down, and the analyses behind them."""
    selection, counted = _selected(request)
    rows = totals_by(counted, selection.by)
    totals = totals_of(rows)
    paginator = CountedPaginator(largest_first(counted), totals.workloads)
    page = paginator.get_page(request.GET.get("page"))
    context = {
        "nav": "savings",
        "selection": selection,
        "query": selection.query(),
        "totals": totals,
        "realised_verified": verified(counted),
        "kinds": {
            "realised": selection.query(kind="realised"),
            "potential": selection.query(kind="potential"),
        },
        "dimensions": [(name, selection.query(by=name)) for name in DIMENSIONS],
        "rows": [_shown(selection, row) for row in rows[:SHOWN_ROWS]],
        "rows_are_cut": len(rows) > SHOWN_ROWS,
        "page": page,
        "analyses": list(counted_analyses(page)),
    }
    return render(request, "savings/savings.html", context)


@require_safe
def totals_as_csv(request: MemberRequest) -> HttpResponseBase:
    """Every row of the table of totals."""
    selection, counted = _selected(request)
    return totals_csv(selection.by, totals_by(counted, selection.by))


@require_safe
def analyses_as_csv(request: MemberRequest) -> HttpResponseBase:
    """Every analysis behind the totals."""
    _, counted = _selected(request)
    return analyses_csv(counted_analyses(largest_first(counted).iterator()))


@require_safe
def estimate(request: MemberRequest, pk: int) -> HttpResponse:
    """The estimate with other assumptions; nothing is stored.

    It is for the ladder's rung on the page, if the page shows one.
    """
    analysis, rung = find_analysis(request, pk), request.GET.get("rung", "")
    ladder = ladder_of(request.user, analysis, rung) if rung else None
    answer = (ladder.result if ladder else None) or result_of(analysis)
    if answer is None:
        raise Http404(f"Analysis {pk} has no answer to estimate from.")
    found = estimate_of(answer, request.GET.dict(), adopted=analysis.adopted_at is not None)
    page = reverse("analyses:detail", args=[pk])
    response = render(request, "savings/_estimate.html", {"analysis": analysis, "estimate": found})
    query = "&".join(filter(None, [urlencode({"rung": rung}) if rung else "", found.query]))
    return replace_url(response, f"{page}?{query}" if query else page)


@require_POST
def adopt(request: MemberRequest, pk: int) -> HttpResponse:
    """Mark what the page shows as adopted: the recommended batch, or a rung of the ladder."""
    analysis, name = _adoptable(request, pk), request.POST.get("rung", "")
    rows = ladder_of(request.user, analysis).rows if name else []
    rung = next((row.rung for row in rows if row.name == name and row.rung.result), None)
    if name and rung is None:
        messages.warning(request, f"{name} is no longer offered. Choose again.")
    elif not services.adopt(analysis, request.user, rung):
        messages.warning(request, f"Analysis {pk} has no recommendation, or is already adopted.")
    return redirect("analyses:detail", pk=pk)


@require_POST
def undo_adoption(request: MemberRequest, pk: int) -> HttpResponse:
    if not services.undo_adoption(_adoptable(request, pk), request.user):
        messages.warning(request, f"Analysis {pk} was not adopted.")
    return redirect("analyses:detail", pk=pk)


def _selected(request: MemberRequest) -> tuple[Selection, QuerySet[CountedSavings]]:
    try:
        selection = Selection.parse(request.GET.dict())
    except InvalidInput as error:
        raise Http404(f"These savings cannot be shown: {error}.") from error
    return selection, selection.of(savings_visible_to(request.user))


def _shown(selection: Selection, row: Row) -> dict[str, object]:
    """A row with links to the analyses behind each of its totals."""
    value = value_of(selection.by, row.key)
    return {
        "label": label_of(selection.by, value),
        "all": selection.query(**{selection.by: value}),
        "kinds": [
            (total, selection.query(**{selection.by: value, "kind": kind}))
            for kind, total in vars(row.totals).items()
        ],
    }


def _adoptable(request: MemberRequest, pk: int) -> Analysis:
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only the analysis's owner or an admin can mark it as adopted.")
    return analysis


_TOTAL_COLUMNS = (
    "usd_per_year", "gpu_hours_per_year", "kwh_per_year_predicted", "kg_co2e_per_year_predicted",
    "workloads", "speedup_sources",
)  # fmt: skip
_ANALYSIS_COLUMNS = (
    "analysis", "member", "model", "gpu", "month", "savings", "verified", "current_batch_size",
    "recommended_batch_size", "speedup", "speedup_source", "hours_per_run_assumed",
    "runs_per_year_assumed", "price_per_hour_usd_assumed", "gpu_hours_per_year", "usd_per_year",
    "grid_co2e_grams_per_kwh_assumed", "kwh_per_year_predicted", "kg_co2e_per_year_predicted",
)  # fmt: skip


def totals_csv(dimension: str, rows: Iterable[Row]) -> StreamingHttpResponse:
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


def analyses_csv(analyses: Iterable[CountedAnalysis]) -> StreamingHttpResponse:
    return _csv("savings-analyses.csv", _ANALYSIS_COLUMNS, map(_line, analyses))


def _cells(total: Total) -> list[Cell]:
    sources = " and ".join(total.sources)
    return [
        total.usd_per_year, total.gpu_hours_per_year, total.kwh_per_year, total.kg_co2e_per_year,
        total.workloads, sources,
    ]  # fmt: skip


def _line(counted: CountedAnalysis) -> list[Cell]:
    analysis: Analysis = counted.analysis
    return [
        analysis.pk, analysis.owner.get_username(), model_name(analysis.model), gpu_of(analysis),
        counted.month, counted.kind, "yes" if counted.is_verified else "no",
        analysis.current_batch_size, analysis.recommended_batch_size,
        analysis.speedup, analysis.source, counted.hours_per_run, counted.runs_per_year,
        counted.price_per_hour_usd, analysis.gpu_hours_per_year or 0.0,
        analysis.usd_per_year or 0.0, counted.grid_co2e_grams_per_kwh, analysis.kwh_per_year,
        analysis.kg_co2e_per_year,
    ]  # fmt: skip


def _csv(name: str, head: Iterable[str], lines: Iterable[Iterable[Cell]]) -> StreamingHttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    text = csv_lines(chain([head], lines))
    return StreamingHttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)
