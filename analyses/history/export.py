"""The history as a file: exactly the rows, order and columns that an address shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from django.db.models import QuerySet

from analyses import csv_text
from analyses.history.columns import Cell, Column, Value
from analyses.history.labels import with_labels
from analyses.models import Analysis

CHUNK = 200
"""Rows read at a time: a long history does not lie in memory, and its first lines come soon."""


def csv_of(analyses: QuerySet[Analysis], columns: Iterable[Column]) -> Iterator[str]:
    """A line with the names, then one for each analysis."""
    cells = _cells(columns)
    names: list[list[csv_text.Cell]] = [[cell.name for cell in cells]]
    values = ([_plain(cell.value(row)) for cell in cells] for row in _rows(analyses))
    return csv_text.csv_lines(chain(names, values))


def json_pieces(analyses: QuerySet[Analysis], columns: Iterable[Column]) -> Iterator[str]:
    """One JSON array with an object for each analysis."""
    cells = _cells(columns)
    before = "[\n"
    for row in _rows(analyses):
        yield before + json.dumps({cell.name: cell.value(row) for cell in cells})
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _cells(columns: Iterable[Column]) -> Sequence[Cell]:
    return [cell for column in columns for cell in column.cells]


def _rows(analyses: QuerySet[Analysis]) -> Iterator[Analysis]:
    """The ids come first, from an index alone: no database then sorts or copies the long rows."""
    ids = _ids(analyses)
    rows = with_labels(Analysis.objects.all()).defer("result")
    while chunk := list(islice(ids, CHUNK)):
        found = rows.in_bulk(chunk)
        yield from (found[pk] for pk in chunk if pk in found)


def _ids(analyses: QuerySet[Analysis]) -> Iterator[int]:
    """Each once; the first by themselves, since PostgreSQL finds all before it gives the first.

    (Its cursor outlives a transaction: none is held open for as long as somebody downloads.)
    """
    ids = analyses.values_list("pk", flat=True)
    first = list(ids[:CHUNK])
    yield from first
    if len(first) == CHUNK:
        yield from ids.exclude(pk__in=first).iterator(chunk_size=CHUNK)


def _plain(value: Value) -> csv_text.Cell:
    """A value as one cell."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else value
