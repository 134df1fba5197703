"""The history as a file: exactly the rows, order and columns that an address shows."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence

from django.db.models import QuerySet

from analyses.history.columns import Cell, Column, Value
from analyses.history.labels import with_labels
from analyses.models import Analysis

CHUNK = 500
"""Rows read at a time, so that a long history does not lie in memory."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class _Echo:
    """A file that gives back what is written."""

    def write(self, text: str) -> str:
        return text


def csv_lines(analyses: QuerySet[Analysis], columns: Iterable[Column]) -> Iterator[str]:
    """A line with the names, then one for each analysis."""
    cells = _cells(columns)
    writer = csv.writer(_Echo())
    yield writer.writerow(cell.name for cell in cells)
    for row in _rows(analyses):
        yield writer.writerow(_guarded(cell.value(row)) for cell in cells)


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
    return with_labels(analyses).defer("result").iterator(chunk_size=CHUNK)


def _guarded(value: Value) -> str | int | float:
    """A cell that no spreadsheet takes for a formula: such text gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        value = ", ".join(value)
    if isinstance(value, str) and value.lstrip().startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
