"""The comparison page, and its picture for slides."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from analyses.models import Analysis, Status
from analyses.pages.access import MemberRequest
from analyses.pages.compare.charts import bars_description, bars_svg, memory_chart, speed_chart
from analyses.pages.compare.columns import FEWEST, MOST, Choice, Column, columns_of, title_of
from analyses.pages.compare.rows import answer_rows, setting_rows
from analyses.selectors import visible_to

OFFERED = 30
"""Analyses offered to choose from; others can be chosen by number."""


@require_safe
def compare(request: MemberRequest) -> HttpResponse:
    """Two to ten analyses side by side; with fewer, a list to choose from."""
    choice, columns = _chosen(request)
    context = {
        "choice": choice,
        "columns": columns,
        "offered": _offered(request, columns),
        "most": MOST,
        "nav": "compare",
    }
    if len(columns) < FEWEST:
        return render(request, "compare/choose.html", context)
    context |= {
        "title": title_of(columns),
        **_table(choice, columns),
        "heads": [_head(choice, column) for column in columns],
        "has_answers": any(column.result for column in columns),
        "memory_chart": memory_chart(columns),
        "speed_chart": speed_chart(columns),
        "bars_description": bars_description(columns),
        "bars_address": choice.address("analyses:compare-bars"),
        "file_name": _file_name(choice),
    }
    return render(request, "compare/compare.html", context)


@require_safe
def bars(request: MemberRequest) -> HttpResponse:
    """The bars as an SVG; a file to save with ``download=1``."""
    choice, columns = _chosen(request)
    if len(columns) < FEWEST:
        raise Http404("Choose at least two analyses, for example ?ids=3,5")
    response = HttpResponse(bars_svg(columns, choice.base), content_type="image/svg+xml")
    if request.GET.get("download") == "1":
        response["Content-Disposition"] = f'attachment; filename="{_file_name(choice)}.svg"'
    return response


def _table(choice: Choice, columns: list[Column]) -> dict[str, Any]:
    """The rows to show, in groups, and how many are identical in all columns."""
    groups = {
        "Settings": setting_rows(columns),
        "Results": answer_rows(columns, choice.base),
    }
    shown = {
        name: [row for row in rows if row.differs or not choice.only_differences]
        for name, rows in groups.items()
    }
    return {
        "groups": [(name, rows) for name, rows in shown.items() if rows],
        "alike_count": sum(not row.differs for rows in groups.values() for row in rows),
    }


def _chosen(request: MemberRequest) -> tuple[Choice, list[Column]]:
    choice = Choice.read(request.GET)
    found = {
        analysis.pk: analysis for analysis in visible_to(request.user).filter(pk__in=choice.ids)
    }
    choice = choice.of_those_found(found)
    return choice, columns_of([found[pk] for pk in choice.ids])


def _offered(request: MemberRequest, columns: list[Column]) -> list[Analysis]:
    """The newest successful analyses, those of the models already chosen first.

    In two queries, each of which stops once it has enough; sorting by model would read them all.
    """
    models = {column.analysis.model for column in columns}
    answered = (
        visible_to(request.user)
        .filter(status=Status.SUCCEEDED)
        .exclude(pk__in=[column.pk for column in columns])
        .defer("result")
        .order_by("-pk")
    )
    alike, others = answered.filter(model__in=models), answered.exclude(model__in=models)
    return [*alike[:OFFERED], *others[:OFFERED]][:OFFERED]


def _head(choice: Choice, column: Column) -> dict[str, object]:
    """The heading of a column, with its links."""
    return {
        "column": column,
        "is_base": column.pk == choice.base,
        "as_base": choice.with_base(column.pk).address(),
        "without": choice.without(column.pk).address(),
    }


def _file_name(choice: Choice) -> str:
    return f"memorymark-{'-'.join(map(str, choice.ids))}"
