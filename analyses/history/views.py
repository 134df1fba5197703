"""The pages and files of the history. Whatever they show stands in their address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import push_url

from analyses.history import export, table
from analyses.history.columns import COLUMNS, Column
from analyses.history.filters import HistoryFilter, offer_choices
from analyses.history.forms import LabelsForm
from analyses.history.labels import LabelsChanged, labels_of, write_labels
from analyses.history.saved_views import views_of
from analyses.models import Analysis
from analyses.permissions import may_delete_view
from analyses.selectors import visible_to
from analyses.views import MemberRequest, find_analysis
from memorymark_site.accounts.roles import Role, needs

Writer = Callable[[QuerySet[Analysis], Iterable[Column]], Iterator[str]]


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
def history(request: MemberRequest) -> HttpResponse:
    """The table; its rows alone, or nothing, where the browser asks whether they changed."""
    filters = _filters(request)
    page = table.page_of(_found(filters), table.page_number(request.GET.get("page", "")))
    version = "-".join(f"{row.pk}{row.status[:7]}" for row in page.rows)
    asks_again = request.htmx and "seen" in request.GET
    if asks_again and request.GET["seen"] == version:
        return HttpResponse(status=204)
    query = table.query_of(request.GET)
    columns = table.columns_of(filters)
    context = {
        "page": page,
        "columns": columns,
        "shown": {column.key for column in columns},
        "query": query,
        "version": version,
        "refresh": any(not row.is_final for row in page.rows),
        "nav": "list",
    }
    if asks_again:
        return render(request, "history/_rows.html", context)
    context["saved_views"] = [
        (view, may_delete_view(request.user, view)) for view in views_of(request.user)
    ]
    context["heads"] = table.heads(request.GET, columns)
    if request.htmx.target == "results":
        response = render(request, "history/_results.html", context)
        return push_url(response, f"{request.path}?{query}" if query else request.path)
    offer_choices(filters.form)
    context["form"] = filters.form
    context["choosable"] = [column for column in COLUMNS if not column.is_fixed]
    context["is_empty_lab"] = not (page.rows or query or visible_to(request.user).exists())
    context["is_filtered"] = bool(table.query_of(request.GET, sort="", columns=""))
    return render(request, "history/list.html", context)


@require_safe
def export_csv(request: MemberRequest) -> HttpResponseBase:
    """What the same address of the history shows, as CSV."""
    return _export(request, export.csv_of, "text/csv; charset=utf-8", "csv")


@require_safe
def export_json(request: MemberRequest) -> HttpResponseBase:
    """What the same address of the history shows, as JSON."""
    return _export(request, export.json_pieces, "application/json", "json")


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def labels(request: MemberRequest, pk: int) -> HttpResponse:
    """The form of an analysis's tags and note, and what it sends."""
    analysis = find_analysis(request, pk)
    if request.method != "POST":
        form = LabelsForm.of(labels_of(analysis))
        return render(request, "history/labels.html", {"analysis": analysis, "form": form})
    form = LabelsForm(request.POST)
    if not form.is_valid():
        return render(request, "history/labels.html", {"analysis": analysis, "form": form})
    given = form.cleaned_data
    try:
        write_labels(analysis, given["tags"], given["note"], request.user, seen=[given["seen"]])
    except LabelsChanged:
        return _labels_changed(request, pk, form)
    return redirect("analyses:detail", pk=pk)


def _labels_changed(request: MemberRequest, pk: int, sent: LabelsForm) -> HttpResponse:
    """What is stored now and what was typed: saving once more, or leaving it, is the choice."""
    analysis = find_analysis(request, pk)
    typed = {"tags": sent.data.get("tags", ""), "note": sent.data.get("note", "")}
    form = LabelsForm(initial=typed | {"seen": labels_of(analysis).version})
    context = {"analysis": analysis, "form": form, "is_changed": True}
    return render(request, "history/labels.html", context, status=409)


def _export(request: MemberRequest, write: Writer, kind: str, ending: str) -> HttpResponseBase:
    filters = _filters(request)
    if not filters.form.is_valid():
        return HttpResponse(filters.form.errors.as_text(), status=400, content_type="text/plain")
    pieces = write(filters.qs, table.columns_of(filters))
    disposition = f'attachment; filename="analyses.{ending}"'
    return StreamingHttpResponse(
        pieces, content_type=kind, headers={"Content-Disposition": disposition}
    )


def _filters(request: MemberRequest) -> HistoryFilter:
    return HistoryFilter(request.GET, queryset=visible_to(request.user))


def _found(filters: HistoryFilter) -> QuerySet[Analysis]:
    """What the filters let through; nothing where one of them is wrong, as its field then says."""
    found: QuerySet[Analysis] = filters.qs if filters.form.is_valid() else filters.queryset.none()
    return found
