"""The comparison page, and its picture for slides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from analyses.models import FINAL_STATUSES, Analysis, Status
from analyses.pages.access import MemberRequest
from analyses.pages.compare.charts import bars_description, bars_svg, memory_chart, speed_chart
from analyses.pages.compare.columns import FEWEST, MOST, Choice, Column, columns_of, title_of
from analyses.pages.compare.rows import Row, answer_rows, setting_rows
from analyses.pages.hearing import hear
from analyses.selectors import visible_to

OFFERED = 30
"""Analyses offered to choose from; others can be chosen by number."""


@dataclass(frozen=True)
class Progress:
    """How far the analyses of a comparison are; ``statuses`` are in the order of the columns.

    As text it goes to the browser, which sends it back to ask for what is newer.
    """

    statuses: tuple[str, ...]

    @classmethod
    def of(cls, analyses: Iterable[Analysis]) -> Progress:
        return cls(tuple(analysis.status for analysis in analyses))

    @property
    def done(self) -> int:
        return sum(status in FINAL_STATUSES for status in self.statuses)

    @property
    def unanswered(self) -> int:
        """How many of those that are done have no answer."""
        return self.done - self.statuses.count(Status.SUCCEEDED)

    @property
    def is_running(self) -> bool:
        return self.done < len(self.statuses)

    def __str__(self) -> str:
        return "-".join(self.statuses)


@require_safe
def compare(request: MemberRequest) -> HttpResponse:
    """Analyses side by side; with fewer than two, a list to choose from.

    For htmx the changing part, as soon as it changes; 204 if it does not for a while.
    """
    seen = request.GET.get("seen", "")
    if request.htmx and not hear(lambda: _progress(request) != seen):
        return HttpResponse(status=204)
    choice, columns = _chosen(request)
    if len(columns) < FEWEST:
        context = {"choice": choice, "columns": columns, **_to_add(request, columns)}
        return render(request, "compare/choose.html", context)
    context = _side_by_side(choice, columns)
    if request.htmx:
        answered = str(context["progress"]).count(Status.SUCCEEDED)
        context |= {"is_update": True, "new_answers": answered > seen.count(Status.SUCCEEDED)}
        return render(request, "compare/_live.html", context)
    return render(request, "compare/compare.html", context | _to_add(request, columns))


def _progress(request: MemberRequest) -> str:
    """The progress of the chosen analyses, without reading their results."""
    chosen = Choice.read(request.GET).ids
    found = visible_to(request.user).only("status").select_related(None).in_bulk(chosen)
    return str(Progress.of(found[pk] for pk in chosen if pk in found))


def _to_add(request: MemberRequest, columns: list[Column]) -> dict[str, Any]:
    """What the list of other analyses shows."""
    return {"offered": _offered(request, columns), "most": MOST, "nav": "compare"}


def _side_by_side(choice: Choice, columns: list[Column]) -> dict[str, Any]:
    """What the columns and their charts show."""
    return {
        "choice": choice,
        "columns": columns,
        "progress": Progress.of(column.analysis for column in columns),
        "answered": sum(column.result is not None for column in columns),
        "title": title_of(columns),
        "groups": _groups(choice, columns),
        "heads": [_head(choice, column) for column in columns],
        "memory_chart": memory_chart(columns),
        "speed_chart": speed_chart(columns),
        "bars_description": bars_description(columns),
        "bars_address": choice.address("analyses:compare-bars"),
        "file_name": _file_name(choice),
    }


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


def _groups(choice: Choice, columns: list[Column]) -> list[tuple[str, list[Row]]]:
    """The rows to show, under their titles."""
    groups = {
        "Settings": setting_rows(columns),
        "Results": answer_rows(columns, choice.base),
    }
    shown = {
        name: [row for row in rows if row.differs or not choice.only_differences]
        for name, rows in groups.items()
    }
    return [(name, rows) for name, rows in shown.items() if rows]


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
