"""The columns of the history: how each sorts, and what an export holds of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.expressions import OrderBy

from analyses.formatting import gpu_name, model_name
from analyses.models import Analysis, TrainingRun, Trial, outcome_of
from engine.answer.figures import (
    LARGEST_BATCH,
    LONGEST_ROW,
    LONGEST_TEXT,
    SPEEDUP,
    USD_PER_YEAR,
)
from engine.core.fields import Field
from engine.interface.request import FIELDS

Value = str | int | float | bool | list[str] | None
"""A cell of an export, never rounded."""


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Cell:
    """One column of an export.

    Attributes:
        name: Has the unit.
        reads: The fields of an analysis that it shows; ``tags`` is the list of their names,
            ``speeds`` that of :func:`~analyses.pages.history.columns.speeds_of`, and
            ``verified_at`` is :data:`VERIFIED_AT`.
        value: Makes the cell of these fields' values.
    """

    name: str
    reads: tuple[str, ...]
    value: Callable[..., Value] = _itself


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


def _listed(moves: list[str] | None) -> list[str]:
    return moves or []


def _time(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None


def _verified(adopted_at: datetime | None, verified_at: datetime | None) -> str | None:
    return _time(verified_at) if adopted_at else None


def _speeds(speeds: list[tuple[int, float]]) -> list[str]:
    return [f"{batch}: {speed}" for batch, speed in speeds]


VERIFYING = TrainingRun.objects.filter(analysis=OuterRef("pk"), verifies=True)
"""The training runs with what an analysis recommends; they verify one that is adopted."""

VERIFIED_AT = Subquery(VERIFYING.order_by("recorded_at").values("recorded_at")[:1])
"""The end of the first of them."""

_SORTABLE = {field.name for field in Analysis._meta.get_fields()}
_GPU = Cell("gpu", ("gpu", "measured_gpu"), lambda gpu, measured: measured or gpu_name(gpu))
_PRECISION = Cell("precision", ("precision",))
"""Settings in an export, which the table shows as chips."""


def _setting(described: Field) -> Column:
    """A column for a field of the request; it sorts where the table has a column of that name."""
    name = described.name
    return Column(
        name,
        described.label,
        (name,) if name in _SORTABLE else (),
        (Cell(name, ("request",), lambda request: request.get(name)),),
        is_number=described.is_number,
        is_usual=False,
        is_setting=True,
    )


COLUMNS = (
    Column("id", "#", ("pk",), (Cell("id", ("pk",)),), is_number=True, is_fixed=True),
    Column(
        "model",
        "Model",
        ("model",),
        (Cell("model", ("model",), model_name),),
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
            Cell("current_batch_size", ("current_batch_size",)),
            Cell("recommended_batch_size", ("recommended_batch_size",)),
            Cell("moves", ("decided__moves",), _listed),
        ),
        note="current → recommended",
        is_number=True,
    ),
    Column(
        "largest",
        LARGEST_BATCH.label,
        ("largest_batch_size",),
        (Cell("largest_batch_size", ("largest_batch_size",)),),
        is_number=True,
        is_usual=False,
    ),
    Column(
        "longest",
        LONGEST_TEXT.label,
        (),
        (
            Cell("goal", ("goal",)),
            Cell("longest_tokens", ("longest_tokens",)),
        ),
        note="tokens that fit",
        is_number=True,
        is_usual=False,
    ),
    Column(
        "speedup",
        SPEEDUP.label,
        ("speedup",),
        (Cell("speedup", ("speedup",)), Cell("has_gain", ("has_gain",))),
        is_number=True,
    ),
    Column(
        "lengths",
        LONGEST_ROW.label,
        (),
        (
            Cell("worst_tokens", ("worst_tokens",)),
            Cell("padding_share", ("padding",)),
        ),
        note="tokens; share of padding",
        is_number=True,
        is_usual=False,
    ),
    Column(
        "savings",
        USD_PER_YEAR.label,
        ("usd_per_year",),
        (Cell("savings_usd_per_year_at_assumed_prices", ("usd_per_year",)),),
        note="at assumed prices",
        is_number=True,
    ),
    Column("source", "Source", ("source",), (Cell("source", ("source",)),), is_fixed=True),
    Column(
        "status",
        "Status",
        ("status",),
        (
            Cell("status", ("status",)),
            Cell("outcome", ("status", "failure_code"), outcome_of),
        ),
    ),
    Column(
        "member",
        "Member",
        ("owner__username",),
        (Cell("member", ("owner__username",)),),
    ),
    Column(
        "adopted",
        "Adopted",
        (),
        (Cell("adopted_at", ("adopted_at",), _time),),
    ),
    Column(
        "verified",
        "Verified",
        (),
        (Cell("verified_at", ("adopted_at", "verified_at"), _verified),),
    ),
    Column(
        "pushed",
        "Imported from",
        (),
        (Cell("pushed_from", ("push__host",)),),
        is_usual=False,
    ),
    Column(
        "script",
        "Script",
        (),
        (Cell("program_hash", ("program_hash",)),),
        note="hash of its step",
        is_usual=False,
    ),
    Column(
        "speeds",
        "Speed by batch",
        (),
        (Cell("samples_per_second_by_batch_size", ("speeds",), _speeds),),
        note="samples per second",
        is_usual=False,
    ),
    Column("project", "Project", (), (Cell("project", ("project__name",)),), is_usual=False),
    Column("tags", "Tags", (), (Cell("tags", ("tags",)),)),
    Column("note", "Note", (), (Cell("note", ("note__text",)),), is_usual=False),
    Column(
        "when",
        "When",
        ("queued_at",),
        (Cell("queued_at", ("queued_at",), _time),),
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


Speeds = list[tuple[int, float]]
"""Batch sizes, rising, with their samples per second."""


def speeds_of(ids: Sequence[int]) -> dict[int, Speeds]:
    """The speeds of the batches that fit, by analysis; a later attempt's trial counts."""
    found: dict[int, dict[int, float]] = {}
    timed = Trial.objects.filter(
        analysis__in=ids, fits=True, samples_per_second__isnull=False
    ).order_by("batch_size", "attempt", "pk")
    for pk, batch, speed in timed.values_list("analysis_id", "batch_size", "samples_per_second"):
        found.setdefault(pk, {})[batch] = speed or 0.0
    return {pk: list(speeds.items()) for pk, speeds in found.items()}
