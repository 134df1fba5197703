"""The columns of the history: how each sorts, and what exports hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice

from django.db.models import F, QuerySet
from django.db.models.expressions import OrderBy

from analyses.formatting import gpu_of, model_name
from analyses.models import Analysis, pushed_from
from analyses.pages.history.labels import note_of, with_labels
from engine.fields import Field
from engine.request import FIELDS
from memorymark_site.operations import csv_text

Value = str | int | float | bool | list[str] | None
"""A cell of an export, never rounded."""


@dataclass(frozen=True)
class Cell:
    """One column of an export; its name has the unit."""

    name: str
    value: Callable[[Analysis], Value]


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        order: The database fields it sorts by; empty where it does not sort.
        cells: Its columns in an export.
        note: A second line of its heading, such as what its numbers rest on.
        is_fixed: Always shown, since rows or numbers mean nothing without it.
        is_usual: Shown by default.
        is_setting: Whether it is a field of the request, its key being the field's name.
    """

    key: str
    title: str
    order: tuple[str, ...]
    cells: tuple[Cell, ...]
    note: str = ""
    is_number: bool = False
    is_fixed: bool = False
    is_usual: bool = True
    is_setting: bool = False


def _time(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None


_SORTABLE = {field.name for field in Analysis._meta.get_fields()}
_GPU = Cell("gpu", gpu_of)
_PRECISION = Cell("precision", lambda row: row.precision)
"""What an export holds of the settings, which the table shows as chips."""


def _setting(described: Field) -> Column:
    """A column for a field of the request; it sorts where the table has a column of that name."""
    name = described.name
    return Column(
        name,
        described.label,
        (name,) if name in _SORTABLE else (),
        (Cell(name, lambda row: row.request.get(name)),),
        is_number=described.is_number,
        is_usual=False,
        is_setting=True,
    )


COLUMNS = (
    Column("id", "#", ("pk",), (Cell("id", lambda row: row.pk),), is_number=True, is_fixed=True),
    Column(
        "model",
        "Model",
        ("model",),
        (Cell("model", lambda row: model_name(row.model)),),
        is_fixed=True,
    ),
    Column("settings", "Settings", (), (_GPU, _PRECISION)),
    Column("gpu", "GPU", ("gpu", "measured_gpu"), (_GPU,), is_usual=False),
    *(_setting(described) for described in FIELDS.values() if described.described.is_column),
    Column(
        "batch",
        "Batch",
        ("recommended_batch_size",),
        (
            Cell("current_batch_size", lambda row: row.current_batch_size),
            Cell("recommended_batch_size", lambda row: row.recommended_batch_size),
        ),
        note="current → recommended",
        is_number=True,
    ),
    Column(
        "largest",
        "Largest batch",
        ("largest_batch_size",),
        (Cell("largest_batch_size", lambda row: row.largest_batch_size),),
        is_number=True,
        is_usual=False,
    ),
    Column(
        "speedup",
        "Speedup",
        ("speedup",),
        (Cell("speedup", lambda row: row.speedup), Cell("has_gain", lambda row: row.has_gain)),
        is_number=True,
    ),
    Column(
        "savings",
        "Savings per year",
        ("usd_per_year",),
        (Cell("savings_usd_per_year_at_assumed_prices", lambda row: row.usd_per_year),),
        note="at assumed prices",
        is_number=True,
    ),
    Column(
        "source", "Source", ("source",), (Cell("source", lambda row: row.source),), is_fixed=True
    ),
    Column("status", "Status", ("status",), (Cell("status", lambda row: row.status),)),
    Column(
        "member",
        "Member",
        ("owner__username",),
        (Cell("member", lambda row: row.owner.get_username()),),
    ),
    Column(
        "adopted",
        "Adopted",
        (),
        (Cell("adopted_at", lambda row: _time(row.adopted_at)),),
        is_usual=False,
    ),
    Column(
        "pushed",
        "Imported from",
        (),
        (Cell("pushed_from", lambda row: pushed_from(row)),),
        is_usual=False,
    ),
    Column("tags", "Tags", (), (Cell("tags", lambda row: [tag.name for tag in row.tags.all()]),)),
    Column("note", "Note", (), (Cell("note", note_of),), is_usual=False),
    Column(
        "when",
        "When",
        ("queued_at",),
        (Cell("queued_at", lambda row: _time(row.queued_at)),),
    ),
)

SORTS = {
    f"{sign}{column.key}": f"{column.title}, {'descending' if sign else 'ascending'}"
    for column in COLUMNS
    if column.order
    for sign in ("", "-")
}
"""The sort orders by name, with their labels."""

_BY_KEY = {column.key: column for column in COLUMNS}
_EMPTY_WITHOUT_ANSWER = {"recommended_batch_size", "largest_batch_size", "speedup", "usd_per_year"}


def shown(chosen: Sequence[str]) -> list[Column]:
    """The columns to show, in their own order; the usual ones where none is chosen."""
    return [
        column
        for column in COLUMNS
        if column.is_fixed or (column.key in chosen if chosen else column.is_usual)
    ]


def in_order(analyses: QuerySet[Analysis], sort: str) -> QuerySet[Analysis]:
    """Sorted by one of :data:`SORTS`; rows without a value come last, either way.

    Equal rows come newest first, or oldest first in a descending sort: so one index serves both.
    """
    falls = sort.startswith("-")
    fields = _BY_KEY[sort.removeprefix("-")].order
    newest = [] if fields == ("pk",) else [F("pk").asc() if falls else F("pk").desc()]
    return analyses.order_by(*(_by(field, falls) for field in fields), *newest)


def _by(field: str, falls: bool) -> OrderBy:
    last = True if field in _EMPTY_WITHOUT_ANSWER else None
    return F(field).desc(nulls_last=last) if falls else F(field).asc(nulls_last=last)


CHUNK = 200
"""Rows read at a time, so that a long export starts at once and is never whole in memory."""


def csv_of(analyses: QuerySet[Analysis], columns: Iterable[Column]) -> Iterator[str]:
    """A header line, then one line per analysis."""
    cells = _cells(columns)
    names: list[list[csv_text.Cell]] = [[cell.name for cell in cells]]
    values = ([_plain(cell.value(row)) for cell in cells] for row in _rows(analyses))
    return csv_text.csv_lines(chain(names, values))


def json_of(analyses: QuerySet[Analysis], columns: Iterable[Column]) -> Iterator[str]:
    """A JSON array with an object per analysis."""
    cells = _cells(columns)
    before = "[\n"
    for row in _rows(analyses):
        yield before + json.dumps({cell.name: cell.value(row) for cell in cells})
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _cells(columns: Iterable[Column]) -> Sequence[Cell]:
    """Each cell once: two columns may show the same setting."""
    return list({cell.name: cell for column in columns for cell in column.cells}.values())


def _rows(analyses: QuerySet[Analysis]) -> Iterator[Analysis]:
    """First the ids, from an index alone, so that no database sorts or copies the long rows."""
    ids = _ids(analyses)
    rows = with_labels(Analysis.objects.all()).defer("result")
    while chunk := list(islice(ids, CHUNK)):
        found = rows.in_bulk(chunk)
        yield from (found[pk] for pk in chunk if pk in found)


def _ids(analyses: QuerySet[Analysis]) -> Iterator[int]:
    """Each id once; the first chunk by itself, since PostgreSQL finds all before it sends any.

    (Its cursor outlives the transaction, so none stays open for the length of a download.)
    """
    ids = analyses.values_list("pk", flat=True)
    first = list(ids[:CHUNK])
    yield from first
    if len(first) == CHUNK:
        yield from ids.exclude(pk__in=first).iterator(chunk_size=CHUNK)


def _plain(value: Value) -> csv_text.Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else value
