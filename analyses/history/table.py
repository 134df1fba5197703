"""One page of the history as its address asks for it, however long the history is."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import QueryDict

from analyses.history.columns import COLUMNS, Column, shown
from analyses.history.filters import HistoryFilter
from analyses.history.labels import with_labels
from analyses.models import Analysis
from analyses.selectors import Count, count_of

PAGE_SIZE = 25
LAST_PAGE = 1_000_000
_USUAL = [column.key for column in COLUMNS if column.is_usual and not column.is_fixed]


@dataclass(frozen=True)
class Head:
    """A column with the address that sorts by it.

    Attributes:
        sorted_as: The value of ``aria-sort``; empty where the table is not sorted by it.
    """

    column: Column
    query: str
    sorted_as: str


@dataclass(frozen=True)
class Page:
    """One page of a table.

    Attributes:
        count: Of all pages together.
    """

    rows: list[Analysis]
    number: int
    has_next: bool
    count: Count


def page_of(analyses: QuerySet[Analysis], number: int) -> Page:
    """One page.

    First its ids, from an index alone; then their rows. So skipping a thousand pages touches no
    row, and no row's long JSON.
    """
    ids = analyses.values_list("pk", flat=True)
    first = (number - 1) * PAGE_SIZE
    wanted = list(ids[first : first + PAGE_SIZE + 1])
    found = (
        with_labels(Analysis.objects.select_related("owner", "push"))
        .defer("result")
        .in_bulk(wanted)
    )
    rows = [found[pk] for pk in wanted[:PAGE_SIZE] if pk in found]
    return Page(rows, number, len(wanted) > PAGE_SIZE, count_of(analyses))


def page_number(text: str) -> int:
    """The number of a page as it stands in an address; the first where it is none."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1
    return min(max(number, 1), LAST_PAGE)


def columns_of(filters: HistoryFilter) -> list[Column]:
    """The columns that an address asks for."""
    return shown(filters.form.cleaned_data.get("columns", []) if filters.form.is_valid() else [])


def query_of(given: QueryDict, **changes: str | int) -> str:
    """The filters, sorting and columns of an address, in one spelling: no empty or usual ones.

    Args:
        given: The fields of the address; all others, such as the page, are left out.
        changes: Fields to set, or to leave out where empty.
    """
    fields: dict[str, list[str]] = {
        name: [value for value in given.getlist(name) if value]
        for name in HistoryFilter.base_filters
    }
    if sorted(fields["columns"]) == sorted(_USUAL):
        fields["columns"] = []
    fields |= {name: [str(value)] if value else [] for name, value in changes.items()}
    return urlencode({name: values for name, values in fields.items() if values}, doseq=True)


def heads(given: QueryDict, columns: list[Column]) -> list[Head]:
    """The heads of the columns; sorting by the same one again turns the order round."""
    sort = given.get("sort", "") or "-id"
    return [_head(given, column, sort) for column in columns]


def _head(given: QueryDict, column: Column, sort: str) -> Head:
    falling = f"-{column.key}"
    sorted_as = {column.key: "ascending", falling: "descending"}.get(sort, "")
    first, second = (falling, column.key) if _falls_first(column) else (column.key, falling)
    return Head(column, query_of(given, sort=second if sort == first else first), sorted_as)


def _falls_first(column: Column) -> bool:
    """Of numbers and times one wants the largest first, of names A to Z."""
    return column.is_number or column.key == "when"
