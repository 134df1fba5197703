"""The savings page and its CSV files, an estimate under other assumptions, and adopting."""

from __future__ import annotations

from urllib.parse import urlencode

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
from analyses.charts.accrual import PARTS, accrual_bar, accrual_chart, accrual_description
from analyses.models import Analysis, CountedSavings
from analyses.overview import changes
from analyses.pages.access import MemberRequest, find_analysis
from analyses.pages.analysis.ladder import ladder_of
from analyses.pages.long_tables import FIRST_ROWS, long_table
from analyses.pages.savings_export import analyses_csv, over_time_csv, totals_csv
from analyses.permissions import may_change
from analyses.results.stored import result_of
from analyses.savings.accrual import Ledger
from analyses.savings.breakdown import (
    CHUNK,
    DIMENSIONS,
    FILTERED_KINDS,
    BreakdownRow,
    counted_analyses,
    largest_first,
    totals_of,
)
from analyses.savings.estimate import estimate_of
from analyses.savings.period import Named, Period
from analyses.savings.selected import Selected, selected_by
from analyses.savings.selection import Selection, label_of, today_utc, value_of
from analyses.savings.uncounted import hidden, listed, superseded
from analyses.selectors import visible_to
from engine.core.errors import InvalidInput
from memorymark_site.operations.downloads import rows_in_order

SUPERSEDED = "superseded"


class CountedPaginator(Paginator[CountedSavings]):
    """Pages of rows whose number is known already."""

    def __init__(self, counted: QuerySet[CountedSavings], count: int) -> None:
        super().__init__(counted, FIRST_ROWS)
        self.count = count  # instead of a query


@require_safe
def savings(request: MemberRequest) -> HttpResponse:
    """Render savings so far and per year, their breakdown, and the analyses behind them."""
    selected = _selected(request)
    selection, period = selected.selection, selected.selection.days
    rows = selected.rows()
    totals = totals_of(rows)
    table = long_table(rows, request.GET.dict(), selection.query())
    paginator = CountedPaginator(largest_first(selected.counted), totals.workloads)
    page = paginator.get_page(request.GET.get("page"))
    analyses = list(counted_analyses(page, period))
    context = {
        "nav": "savings",
        "selection": selection,
        "period": period,
        "chosen_period": "" if selection.from_ or selection.to else selection.period or Named.YEAR,
        "kept": selection.fields(without=("period", "from_", "to")),
        "periods": [(named, selection.during(named)) for named in Named],
        "query": selection.query(),
        "totals": totals,
        "kinds": {kind: selection.query(kind=kind) for kind in FILTERED_KINDS},
        "list_tabs": _list_tabs(selection),
        "dimensions": [(name, selection.query(by=name)) for name in DIMENSIONS],
        "table": table,
        "rows": [_shown(selection, row) for row in table.rows],
        "page": page,
        "analyses": listed(analyses, changes.latest_mentions([row.counted.pk for row in analyses])),
        "changes": changes.changes_worth_most(selected.counted),
        **accrued(selected.ledger(), period, selection),
    }
    return render(request, "savings/savings.html", context)


@require_safe
def not_counted(request: MemberRequest) -> HttpResponse:
    """List the analyses with a gain that another one of their workload counts for."""
    selected = _selected(request)
    selection = selected.selection
    found = superseded(visible_to(request.user), selection)
    page = Paginator(found.values_list("pk", flat=True), FIRST_ROWS).get_page(
        request.GET.get("page")
    )
    context = {
        "nav": "savings",
        "selection": selection,
        "period": selection.days,
        "query": selection.query(),
        "list_tabs": _list_tabs(selection, SUPERSEDED),
        "page": page,
        "analyses": list(hidden(list(page))),
    }
    return render(request, "savings/superseded.html", context)


def _list_tabs(selection: Selection, shown: str = "") -> list[tuple[str, str, bool]]:
    """The tabs of the list of analyses: name, address, and whether it is shown."""
    page, end = reverse("analyses:savings"), "#behind-title"
    tabs = [("All", "")] + [(PARTS[kind], kind) for kind in PARTS]
    links = [
        (name, f"{page}{selection.query(kind=kind)}{end}", not shown and kind == selection.kind)
        for name, kind in tabs
    ]
    address = f"{reverse('analyses:savings-superseded')}{selection.query(kind='')}"
    return [*links, ("Superseded", address, shown == SUPERSEDED)]


def accrued(ledger: Ledger, period: Period, selection: Selection) -> dict[str, object]:
    """The template context for a period; a projection only for one that has this year in whole."""
    today = today_utc()
    saved, points = ledger.during(period), ledger.points(period)
    of_year = period.last == today and period.first <= today.replace(month=1, day=1)
    projection = ledger.projected(today) if of_year else None
    return {
        "saved": saved,
        "period_from": str(ledger.started(period)),
        "bar": accrual_bar(saved, part_links(selection)),
        "projection": projection,
        "chart": accrual_chart(points, projection),
        "chart_description": accrual_description(points),
    }


def part_links(selection: Selection) -> dict[str, str]:
    """The list of the analyses behind each part of what was saved."""
    page = reverse("analyses:savings")
    return {part: f"{page}{selection.query(kind=part)}#behind-title" for part in PARTS}


@require_safe
def totals_as_csv(request: MemberRequest) -> HttpResponseBase:
    """Every row of the table of totals."""
    selected = _selected(request)
    return totals_csv(selected.selection.by, selected.rows())


@require_safe
def analyses_as_csv(request: MemberRequest) -> HttpResponseBase:
    """Every analysis behind the totals."""
    selected = _selected(request)
    rows = rows_in_order(largest_first(selected.counted), CHUNK)
    return analyses_csv(request, counted_analyses(rows, selected.selection.days))


@require_safe
def over_time_as_csv(request: MemberRequest) -> HttpResponseBase:
    """Export the savings by the end of each day that the chart shows."""
    selected = _selected(request)
    return over_time_csv(selected.ledger().points(selected.selection.days))


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
    is_adopted = analysis.adopted_at is not None and not (ladder and ladder.result)
    found = estimate_of(answer, request.GET.dict(), adopted=is_adopted)
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
def mention(request: MemberRequest, pk: int) -> HttpResponse:
    """Point out a change to the owner of its analysis."""
    analysis = find_analysis(request, pk)
    try:
        made = changes.mention(analysis, request.user)
    except (changes.TooOften, LookupError) as error:
        messages.warning(request, f"Not sent: {error}.")
    else:
        name = analysis.owner.get_username()
        messages.success(request, f"Mentioned to {name}: {made.change}.")
    if request.POST.get("from") == "analysis":
        return redirect("analyses:detail", pk=pk)
    page = "overview" if request.POST.get("from") == "overview" else "savings"
    return redirect(f"{reverse(f'analyses:{page}')}#ask-title")


@require_POST
def undo_adoption(request: MemberRequest, pk: int) -> HttpResponse:
    if not services.undo_adoption(_adoptable(request, pk), request.user):
        messages.warning(request, f"Analysis {pk} was not adopted.")
    return redirect("analyses:detail", pk=pk)


def _selected(request: MemberRequest) -> Selected:
    try:
        return selected_by(request.user, request.GET.dict())
    except InvalidInput as error:
        raise Http404(f"These savings cannot be shown: {error}.") from error


def _shown(selection: Selection, row: BreakdownRow) -> dict[str, object]:
    """A row with links to the analyses behind each of its totals."""
    value = value_of(selection.by, row.key)
    return {
        "label": label_of(selection.by, value),
        "saved": row.saved,
        "all": selection.query(**{selection.by: value}),
        "kinds": [
            (total, selection.query(**{selection.by: value, "kind": kind}))
            for kind, total in row.totals.by_kind.items()
        ],
    }


def _adoptable(request: MemberRequest, pk: int) -> Analysis:
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only the analysis's owner or an admin can mark it as adopted.")
    return analysis
