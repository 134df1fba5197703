"""The pages of savings, and the buttons by which they become realised."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import replace_url

from analyses import services
from analyses.models import Analysis, CountedSavings
from analyses.permissions import may_change
from analyses.savings.behind import behind, largest_first
from analyses.savings.export import analyses_csv, totals_csv
from analyses.savings.selection import Selection, label_of, value_of
from analyses.savings.totals import DIMENSIONS, Row, totals_by, totals_of
from analyses.savings.verified import verified
from analyses.savings.worth import worth_of
from analyses.selectors import savings_visible_to
from analyses.stored_result import result_of
from analyses.views import MemberRequest, find_analysis
from engine.errors import InvalidInput

SHOWN_ROWS = 50
"""Of members, models, GPUs or months; the CSV has them all."""

PAGE_SIZE = 25


class CountedPaginator(Paginator[CountedSavings]):
    """Pages of what is counted already."""

    def __init__(self, counted: QuerySet[CountedSavings], count: int) -> None:
        super().__init__(counted, PAGE_SIZE)
        self.count = count  # takes the place of the property that asks the database


@require_safe
def savings(request: MemberRequest) -> HttpResponse:
    """The lab's totals, taken apart, and the analyses behind them."""
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
        "behind": list(behind(page)),
    }
    return render(request, "savings/savings.html", context)


@require_safe
def totals_as_csv(request: MemberRequest) -> HttpResponseBase:
    """The table of totals, whole."""
    selection, counted = _selected(request)
    return totals_csv(selection.by, totals_by(counted, selection.by))


@require_safe
def analyses_as_csv(request: MemberRequest) -> HttpResponseBase:
    """The analyses behind the totals, all pages of them."""
    _, counted = _selected(request)
    return analyses_csv(behind(largest_first(counted).iterator()))


@require_safe
def worth(request: MemberRequest, pk: int) -> HttpResponse:
    """What an answer is worth under other assumptions; nothing is stored."""
    analysis = find_analysis(request, pk)
    answer = result_of(analysis)
    if answer is None:
        raise Http404(f"Analysis {pk} has no answer to compute with.")
    found = worth_of(answer, request.GET.dict(), adopted=analysis.adopted_at is not None)
    page = reverse("analyses:detail", args=[pk])
    response = render(request, "savings/_worth.html", {"analysis": analysis, "worth": found})
    return replace_url(response, f"{page}?{found.query}" if found.query else page)


@require_POST
def adopt(request: MemberRequest, pk: int) -> HttpResponse:
    """Mark the recommendation of an analysis of one's own as adopted."""
    if not services.adopt(_own(request, pk), request.user):
        messages.warning(request, f"Analysis {pk} has nothing to adopt, or is adopted already.")
    return redirect("analyses:detail", pk=pk)


@require_POST
def take_back(request: MemberRequest, pk: int) -> HttpResponse:
    """Take back that it was adopted."""
    if not services.take_back(_own(request, pk), request.user):
        messages.warning(request, f"Analysis {pk} was not adopted.")
    return redirect("analyses:detail", pk=pk)


def _selected(request: MemberRequest) -> tuple[Selection, QuerySet[CountedSavings]]:
    try:
        selection = Selection.parse(request.GET.dict())
    except InvalidInput as error:
        raise Http404(f"There are no such savings: {error}.") from error
    return selection, selection.of(savings_visible_to(request.user))


def _shown(selection: Selection, row: Row) -> dict[str, object]:
    """A row with the addresses of the analyses behind each of its totals."""
    value = value_of(selection.by, row.key)
    return {
        "label": label_of(selection.by, value),
        "all": selection.query(**{selection.by: value}),
        "kinds": [
            (total, selection.query(**{selection.by: value, "kind": kind}))
            for kind, total in vars(row.totals).items()
        ],
    }


def _own(request: MemberRequest, pk: int) -> Analysis:
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only who has asked for an analysis, or an admin, may adopt it.")
    return analysis
