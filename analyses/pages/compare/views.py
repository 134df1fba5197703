"""The comparison page, and its picture for slides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRedirect

from analyses.models import FINAL_STATUSES, Analysis, Status
from analyses.pages.access import MemberRequest
from analyses.pages.compare.bars import bars_description, bars_svg
from analyses.pages.compare.charts import memory_chart, speed_chart
from analyses.pages.compare.colours import dash, series
from analyses.pages.compare.columns import (
    MIN_ANALYSES,
    Choice,
    Column,
    columns_of,
    history_address,
    source_of,
    title_of,
)
from analyses.pages.compare.export import csv_of, markdown_of
from analyses.pages.compare.release_export import change_csv, change_markdown
from analyses.pages.compare.releases import ReleaseChange, release_change
from analyses.pages.compare.rows import ComparisonRow, answer_rows, setting_rows
from analyses.pages.compare.scatter import scatter_of
from analyses.pages.compare.verdict import verdict
from analyses.pages.long_poll import hear
from analyses.selectors import visible_to


@dataclass(frozen=True)
class Progress:
    """The progress of a comparison's analyses; ``statuses`` are in the order of the columns.

    What does not fit and has changes with which it does counts as succeeded, as it is compared.

    As text it goes to the browser, which sends it back to request what is newer.
    """

    statuses: tuple[str, ...]

    @classmethod
    def of(cls, analyses: Iterable[Analysis]) -> Progress:
        return cls(tuple(Status.SUCCEEDED if one.has_answer else one.status for one in analyses))

    @property
    def done(self) -> int:
        return sum(status in FINAL_STATUSES for status in self.statuses)

    @property
    def unanswered(self) -> int:
        """The number of finished analyses without a result."""
        return self.done - self.statuses.count(Status.SUCCEEDED)

    @property
    def is_running(self) -> bool:
        return self.done < len(self.statuses)

    def __str__(self) -> str:
        return "-".join(self.statuses)


@require_safe
def compare(request: MemberRequest) -> HttpResponse:
    """Analyses side by side; fewer than two are chosen in the history.

    For htmx the changing part, as soon as it changes; 204 if it does not for a while.
    """
    seen = request.GET.get("seen", "")
    if request.htmx and not hear(lambda: _progress(request) != seen):
        return HttpResponse(status=204)
    choice, columns = _chosen(request)
    if len(columns) < MIN_ANALYSES:
        return _to_history(request, choice, columns)
    context = _side_by_side(choice, columns)
    if request.htmx:
        answered = str(context["progress"]).count(Status.SUCCEEDED)
        context |= {"is_update": True, "new_answers": answered > seen.count(Status.SUCCEEDED)}
        return render(request, "compare/_live.html", context)
    return render(request, "compare/compare.html", context)


def _progress(request: MemberRequest) -> str:
    """The progress of the chosen analyses, without reading their results."""
    chosen = Choice.read(request.GET).ids
    columns = ("status", "failure_code", "recommended_batch_size")
    found = visible_to(request.user).only(*columns).select_related(None).in_bulk(chosen)
    return str(Progress.of(found[pk] for pk in chosen if pk in found))


def _to_history(request: MemberRequest, choice: Choice, columns: list[Column]) -> HttpResponse:
    """The history, with what is chosen so far ticked and a message what to do there."""
    for problem in choice.problems:
        messages.warning(request, problem)
    wanted = f"the analyses to compare with #{columns[0].pk}" if columns else "two or more analyses"
    messages.info(request, f"Tick {wanted}, then select Compare below the table.")
    address = history_address(columns)
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)


def _side_by_side(choice: Choice, columns: list[Column]) -> dict[str, Any]:
    """The template context for the columns and their charts."""
    groups = _groups(choice, columns)
    said = verdict(columns, choice.base)
    return {
        "nav": "list",
        "choice": choice,
        "columns": columns,
        "to_add": history_address(columns),
        "progress": Progress.of(column.analysis for column in columns),
        "answered": sum(column.result is not None for column in columns),
        "title": title_of(columns),
        "page_source": source_of(columns),
        "verdict": said,
        "groups": groups,
        "changed": release_change(columns, choice.base),
        "changed_markdown_address": choice.address("analyses:compare-changed-markdown"),
        "changed_csv_address": choice.address("analyses:compare-changed-csv"),
        "markdown": markdown_of(title_of(columns), said, columns, choice.base, groups),
        "markdown_address": choice.address("analyses:compare-markdown"),
        "csv_address": choice.address("analyses:compare-csv"),
        "heads": [_head(choice, column) for column in columns],
        "memory_chart": memory_chart(columns),
        "speed_chart": speed_chart(columns),
        "scatter": scatter_of(columns, choice.x, choice.y),
        "bars_description": bars_description(columns),
        "bars_address": choice.address("analyses:compare-bars"),
        "file_name": _file_name(choice),
    }


@require_safe
def bars(request: MemberRequest) -> HttpResponse:
    """The bars as an SVG; a file to save with ``download=1``."""
    choice, columns = _two_or_more(request)
    response = HttpResponse(bars_svg(columns, choice.base), content_type="image/svg+xml")
    if request.GET.get("download") == "1":
        response["Content-Disposition"] = f'attachment; filename="{_file_name(choice)}.svg"'
    return response


@require_safe
def table_as_markdown(request: MemberRequest) -> HttpResponse:
    """The verdict and the table as text to paste."""
    choice, columns = _two_or_more(request)
    text = markdown_of(
        title_of(columns),
        verdict(columns, choice.base),
        columns,
        choice.base,
        _groups(choice, columns),
    )
    return HttpResponse(text, content_type="text/markdown; charset=utf-8")


@require_safe
def table_as_csv(request: MemberRequest) -> HttpResponse:
    """The table's numbers, unrounded."""
    choice, columns = _two_or_more(request)
    lines = csv_of(columns, _groups(choice, columns))
    disposition = f'attachment; filename="{_file_name(choice)}.csv"'
    return HttpResponse(
        lines,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": disposition},
    )


@require_safe
def changed_as_markdown(request: MemberRequest) -> HttpResponse:
    """The changes between two releases, as text to paste."""
    _, change = _changed(request)
    return HttpResponse(change_markdown(change), content_type="text/markdown; charset=utf-8")


@require_safe
def changed_as_csv(request: MemberRequest) -> HttpResponse:
    """The differences between two releases, unrounded."""
    choice, change = _changed(request)
    disposition = f'attachment; filename="{_file_name(choice)}-changed.csv"'
    return HttpResponse(
        change_csv(change),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": disposition},
    )


def _changed(request: MemberRequest) -> tuple[Choice, ReleaseChange]:
    choice, columns = _two_or_more(request)
    change = release_change(columns, choice.base)
    if change is None:
        raise Http404("These analyses do not differ in their software only.")
    return choice, change


def _two_or_more(request: MemberRequest) -> tuple[Choice, list[Column]]:
    choice, columns = _chosen(request)
    if len(columns) < MIN_ANALYSES:
        raise Http404("Choose at least two analyses, for example ?ids=3,5")
    return choice, columns


def _groups(choice: Choice, columns: list[Column]) -> list[tuple[str, list[ComparisonRow]]]:
    """The rows to show, under their titles."""
    groups = {
        "Results": answer_rows(columns, choice.base),
        "Settings": setting_rows(columns),
    }
    shown = {
        name: [row for row in rows if row.differs or choice.all_rows]
        for name, rows in groups.items()
    }
    return [(name, rows) for name, rows in shown.items() if rows]


def _chosen(request: MemberRequest) -> tuple[Choice, list[Column]]:
    choice = Choice.read(request.GET)
    found = {
        analysis.pk: analysis for analysis in visible_to(request.user).filter(pk__in=choice.ids)
    }
    choice = choice.of_those_found(found)
    return choice, columns_of([found[pk] for pk in choice.ids], choice.places)


def _head(choice: Choice, column: Column) -> dict[str, object]:
    """The heading of a column, with its colour and its links."""
    return {
        "column": column,
        "series": series(column.place),
        "dash": dash(column.place),
        "is_base": column.pk == choice.base,
        "as_base": choice.with_base(column.pk).address(),
        "without": choice.without(column.pk).address(),
    }


def _file_name(choice: Choice) -> str:
    return f"memorymark-{'-'.join(map(str, choice.ids))}"
