"""The columns of the history: how each sorts, and what of it an export holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet
from django.db.models.expressions import OrderBy

from analyses.figures import gain_of
from analyses.history.labels import note_of
from analyses.models import Analysis, pushed_from
from analyses.question import gpu_of, model_name

Value = str | int | float | bool | list[str] | None
"""What one cell of an export holds; rounded nowhere."""


@dataclass(frozen=True)
class Cell:
    """One column of an export: its name, with the unit, and what it holds."""

    name: str
    value: Callable[[Analysis], Value]


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        order: The database fields it sorts by; none where it does not sort.
        cells: What an export holds of it.
        note: A second line of its head, such as what its figures rest on.
        is_fixed: Whether it is always shown: without it a row, or a figure, means nothing.
        is_usual: Whether it is shown unless somebody chooses.
    """

    key: str
    title: str
    order: tuple[str, ...]
    cells: tuple[Cell, ...]
    note: str = ""
    is_number: bool = False
    is_fixed: bool = False
    is_usual: bool = True


def _time(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None


COLUMNS = (
    Column("id", "#", ("pk",), (Cell("id", lambda row: row.pk),), is_number=True, is_fixed=True),
    Column(
        "model",
        "Model",
        ("model",),
        (Cell("model", lambda row: model_name(row.model)),),
        is_fixed=True,
    ),
    Column("gpu", "GPU", ("gpu", "measured_gpu"), (Cell("gpu", gpu_of),)),
    Column(
        "precision", "Precision", ("precision",), (Cell("precision", lambda row: row.precision),)
    ),
    Column(
        "optimizer",
        "Optimizer",
        ("optimizer",),
        (Cell("optimizer", lambda row: row.optimizer),),
        is_usual=False,
    ),
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
        (Cell("speedup", lambda row: row.speedup), Cell("has_gain", lambda row: gain_of(row))),
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
        "Pushed from",
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
    f"{sign}{column.key}": f"{column.title}, {'falling' if sign else 'rising'}"
    for column in COLUMNS
    if column.order
    for sign in ("", "-")
}
"""What the history can be sorted by, with what that means."""

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
    """Sorted by one of :data:`SORTS`; what has no value comes last, either way.

    Rows that are equal come newest first, and oldest first where it falls: one index serves both.
    """
    falls = sort.startswith("-")
    fields = _BY_KEY[sort.removeprefix("-")].order
    newest = [] if fields == ("pk",) else [F("pk").asc() if falls else F("pk").desc()]
    return analyses.order_by(*(_by(field, falls) for field in fields), *newest)


def _by(field: str, falls: bool) -> OrderBy:
    last = True if field in _EMPTY_WITHOUT_ANSWER else None
    return F(field).desc(nulls_last=last) if falls else F(field).asc(nulls_last=last)
