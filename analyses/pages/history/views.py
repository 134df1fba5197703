"""The history page, its exports and its saved views. The address holds all that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import push_url

from analyses.models import Analysis, SavedView
from analyses.pages.access import MemberRequest
from analyses.pages.history.address import Search, query_of, with_one_search
from analyses.pages.history.columns import COLUMNS, VERIFIED_AT, Column, shown, speeds_of
from analyses.pages.history.export import csv_of, json_of
from analyses.pages.history.filters import ROOMY, HistoryFilter, offer_choices, offered
from analyses.pages.history.groups import (
    GROUPED_BY,
    MAX_SHOWN,
    groups_as_csv,
    groups_as_json,
    groups_of,
)
from analyses.pages.history.labels import with_labels
from analyses.pages.history.search import suggestions
from analyses.pages.history.selection import BadSelection, ids_from
from analyses.permissions import may_delete_view, may_see_lab
from analyses.selectors import Count, slice_of, visible_to, with_decision
from memorymark_site.operations.downloads import download

PAGE_SIZE = 25
MAX_PRINTED_COLUMNS = 14
"""Most columns of a table on landscape A4; with more, each analysis is printed as a block."""

LAST_PAGE = 1_000_000

Writer = Callable[[QuerySet[Analysis], Iterable[Column]], Iterator[str]]


@dataclass(frozen=True)
class Head:
    """A column heading, with the query that sorts by it.

    Attributes:
        sorted_as: The value of ``aria-sort``; empty where the table is not sorted by it.
    """

    column: Column
    query: str
    sorted_as: str


@dataclass(frozen=True)
class Page:
    """One page of the table; ``count`` is of all pages together."""

    rows: list[Analysis]
    number: int
    has_next: bool
    count: Count

    @property
    def ids(self) -> list[int]:
        return [row.pk for row in self.rows]

    @property
    def version(self) -> str:
        """Changes whenever the browser has to be sent the rows again."""
        return "-".join(f"{row.pk}{row.status}" for row in self.rows)


class SaveViewForm(forms.Form):
    """A name for what the history shows now; ``query`` is untrusted."""

    name = forms.CharField(max_length=SavedView.MAX_NAME_LENGTH)
    query = forms.CharField(required=False, max_length=5000)
    is_shared = forms.BooleanField(required=False)


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
def history(request: MemberRequest) -> HttpResponse:
    """The page; for htmx its results, its rows, or 204 where the rows have not changed."""
    given = with_one_search(request.GET)
    filters = HistoryFilter(given, queryset=visible_to(request.user))
    page = page_of(_found(filters), page_number(given.get("page", "")))
    is_polling = request.htmx and "seen" in request.GET
    if is_polling and request.GET["seen"] == page.version:
        return HttpResponse(status=204)
    query = query_of(given)
    columns = columns_of(filters)
    context: dict[str, Any] = {
        "page": page,
        "columns": columns,
        "shown": {column.key for column in columns},
        "query": query,
        "refresh": any(not row.is_final for row in page.rows),
        "ticked": ticked_in(given),
        "is_wide": len(columns) > MAX_PRINTED_COLUMNS,
        "is_roomy": given.get("density") == ROOMY,
        "nav": "list",
    }
    if "speeds" in context["shown"]:
        context["speeds"] = speeds_of(page.ids)
    if is_polling:
        return render(request, "history/_rows.html", context)
    context["saved_views"] = [
        (view, may_delete_view(request.user, view)) for view in views_of(request.user)
    ]
    context["heads"] = heads(given, columns)
    context |= _grouped(given, filters)
    context |= {"search": Search.of(given), "form": filters.form}
    if request.htmx.target == "results":
        response = render(request, "history/_results.html", context | {"is_update": True})
        return push_url(response, f"{request.path}?{query}" if query else request.path)
    offer_choices(filters.form)
    context["suggestions"] = suggestions(offered(filters.form))
    context["choosable"] = [column for column in COLUMNS if not column.is_fixed]
    context["is_empty_lab"] = not (page.rows or query or visible_to(request.user).exists())
    return render(request, "history/list.html", context)


@require_safe
def export_csv(request: MemberRequest) -> HttpResponseBase:
    return _export(request, csv_of, "text/csv; charset=utf-8", "csv")


@require_safe
def export_json(request: MemberRequest) -> HttpResponseBase:
    return _export(request, json_of, "application/json", "json")


@require_POST
def save_current(request: MemberRequest) -> HttpResponse:
    """Save the current view of the history under a name."""
    form = SaveViewForm(request.POST)
    query = query_of(QueryDict(request.POST.get("query", "")))
    if form.is_valid():
        name, is_shared = form.cleaned_data["name"], form.cleaned_data["is_shared"]
        save_view(request.user, name, query, is_shared=is_shared)
        messages.success(request, f"Saved as “{name}”.")
    else:
        for field, errors in form.errors.items():
            messages.error(request, f"View not saved. {field.capitalize()}: {errors[0]}")
    return redirect(f"{reverse('analyses:list')}{'?' if query else ''}{query}")


@require_POST
def delete_view(request: MemberRequest, pk: int) -> HttpResponse:
    view = views_of(request.user).filter(pk=pk).first()
    if view is None:
        raise Http404("There is no such saved view.")
    if not may_delete_view(request.user, view):
        raise PermissionDenied("Only the view's owner or an admin can delete it.")
    view.delete()
    # Undo saves it as the reader's own, so it is offered to its owner only.
    context = {"view": view, "can_be_undone": view.owner_id == request.user.pk}
    messages.success(request, render_to_string("history/_view_deleted.html", context, request))
    return redirect("analyses:list")


def views_of(user: User | AnonymousUser) -> QuerySet[SavedView]:
    """The saved views a member can use: their own, and those others share."""
    if not (user.is_authenticated and may_see_lab(user)):
        return SavedView.objects.none()
    return SavedView.objects.filter(Q(owner=user) | Q(is_shared=True)).select_related("owner")


def save_view(owner: User, name: str, query: str, *, is_shared: bool) -> SavedView:
    """Save a view, replacing the owner's view of the same name."""
    view, _ = SavedView.objects.update_or_create(
        owner=owner, name=name, defaults={"query": query, "is_shared": is_shared}
    )
    return view


def page_of(analyses: QuerySet[Analysis], number: int) -> Page:
    """One page of the analyses.

    First its ids, from an index alone; then their rows. So skipping a thousand pages reads no rows
    and none of their long JSON.
    """
    first = (number - 1) * PAGE_SIZE
    found = slice_of(analyses, first, first + PAGE_SIZE + 1)
    wanted = found.ids
    labelled = with_labels(Analysis.objects.select_related("owner", "push", "project"))
    labelled = labelled.annotate(verified_at=VERIFIED_AT)
    rows = with_decision(labelled).defer("result")
    by_id = rows.in_bulk(wanted)
    return Page(
        rows=[by_id[pk] for pk in wanted[:PAGE_SIZE] if pk in by_id],
        number=number,
        has_next=len(wanted) > PAGE_SIZE,
        count=found.count,
    )


def ticked_in(given: QueryDict) -> list[int]:
    """The analyses that an address ticks, as a link to choose more does; none if it is wrong."""
    with suppress(BadSelection):
        return ids_from(given.get("tick", ""))
    return []


def page_number(text: str) -> int:
    """The page number in an address; 1 where it is none."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1
    return min(max(number, 1), LAST_PAGE)


def columns_of(filters: HistoryFilter) -> list[Column]:
    return shown(filters.form.cleaned_data.get("columns", []) if filters.form.is_valid() else [])


def heads(given: QueryDict, columns: list[Column]) -> list[Head]:
    """The column headings; sorting by the same column again reverses the order."""
    sort = given.get("sort", "") or "-id"
    return [_head(given, column, sort) for column in columns]


def _head(given: QueryDict, column: Column, sort: str) -> Head:
    rising, falling = column.key, f"-{column.key}"
    sorted_as = {rising: "ascending", falling: "descending"}.get(sort, "")
    largest_first = column.is_number or column.key == "when"
    first, second = (falling, rising) if largest_first else (rising, falling)
    return Head(column, query_of(given, sort=second if sort == first else first), sorted_as)


def _export(request: MemberRequest, write: Writer, kind: str, ending: str) -> HttpResponseBase:
    filters = HistoryFilter(request.GET, queryset=visible_to(request.user))
    if not filters.form.is_valid():
        raise BadRequest(filters.form.errors.as_text())
    if by := _group_of(filters):
        write_groups = groups_as_csv if ending == "csv" else groups_as_json
        pieces = write_groups(groups_of(filters.qs, by), by)
    else:
        pieces = write(filters.qs, columns_of(filters))
    return download(request, pieces, kind=kind, name=f"analyses.{ending}")


def _group_of(filters: HistoryFilter) -> str:
    """The name of what the history is grouped by; empty where it is not."""
    return str(filters.form.cleaned_data.get("group", "")) if filters.form.is_valid() else ""


def _grouped(given: QueryDict, filters: HistoryFilter) -> dict[str, Any]:
    """The groups that the page shows, if any, and the addresses of each way to group."""
    by = _group_of(filters)
    found = groups_of(filters.qs, by) if by else []
    shown_groups = [(one, query_of(given, group="", **{by: one.value})) for one in found]
    return {
        "group": by,
        "group_title": HistoryFilter.base_filters[by].label if by else "",
        "groups": shown_groups[:MAX_SHOWN],
        "more_groups": max(0, len(found) - MAX_SHOWN),
        "groupings": [
            (HistoryFilter.base_filters[name].label, name, query_of(given, group=_other(name, by)))
            for name in GROUPED_BY
        ],
    }


def _other(name: str, by: str) -> str:
    """Grouping again by the same ends it."""
    return "" if name == by else name


def _found(filters: HistoryFilter) -> QuerySet[Analysis]:
    """The analyses that pass the filters; none where a filter is invalid (its field says so)."""
    found: QuerySet[Analysis] = filters.qs if filters.form.is_valid() else filters.queryset.none()
    return found
