"""Streams the analyses of a history as CSV or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from django.db.models import QuerySet

from analyses.models import Analysis
from analyses.pages.history.columns import VERIFIED_AT, Cell, Column, Value, speeds_of
from analyses.pages.history.labels import TAGGINGS
from memorymark_site.operations import csv_text
from memorymark_site.operations.downloads import ids_in_order

CHUNK = 500
"""Analyses read at a time, so that a long export starts at once and is never whole in memory."""


def csv_of(analyses: QuerySet[Analysis], columns: Iterable[Column]) -> Iterator[str]:
    """A header line, then one line per analysis."""
    cells = _cells(columns)
    names: list[list[csv_text.Cell]] = [[cell.name for cell in cells]]
    values = ([_plain(value) for value in row] for row in _rows(analyses, cells))
    return csv_text.csv_lines(chain(names, values))


def json_of(analyses: QuerySet[Analysis], columns: Iterable[Column]) -> Iterator[str]:
    """A JSON array with an object per analysis."""
    cells = _cells(columns)
    names = [cell.name for cell in cells]
    before = "[\n"
    for row in _rows(analyses, cells):
        yield before + json.dumps(dict(zip(names, row, strict=True)))
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _cells(columns: Iterable[Column]) -> Sequence[Cell]:
    """Each cell once: two columns may show the same setting."""
    return list({cell.name: cell for column in columns for cell in column.cells}.values())


def _rows(analyses: QuerySet[Analysis], cells: Sequence[Cell]) -> Iterator[list[Value]]:
    """The values of each analysis.

    First the ids, from an index alone, so that no database sorts or copies the long rows; then only
    the fields that are shown, without an object for each row, which takes most of the time.
    """
    fields = list(dict.fromkeys(chain(*(cell.reads for cell in cells))))
    places = [(cell.value, [fields.index(name) for name in cell.reads]) for cell in cells]
    for chunk in ids_in_order(analyses, CHUNK):
        found = _values(chunk, fields)
        for pk in chunk:
            if pk in found:  # not deleted since
                row = found[pk]
                yield [value(*[row[place] for place in there]) for value, there in places]


def _values(chunk: Sequence[int], fields: Sequence[str]) -> dict[int, Sequence[Any]]:
    """The values of these fields by id; those of :data:`_ALONG` are lists."""
    stored = ["pk" if name in _ALONG else name for name in fields]
    analyses = Analysis.objects.filter(pk__in=chunk)
    if "verified_at" in fields:
        analyses = analyses.annotate(verified_at=VERIFIED_AT)
    rows = analyses.values_list("pk", *stored)
    found = {pk: row for pk, *row in rows}
    for name in _ALONG.keys() & set(fields):
        place, lists = fields.index(name), _ALONG[name](chunk)
        for pk, row in found.items():
            row[place] = lists.get(pk, [])
    return found


def _tags_of(chunk: Sequence[int]) -> dict[int, list[str]]:
    """The names of tags, A to Z, by analysis."""
    tags: dict[int, list[str]] = {}
    pairs = TAGGINGS.filter(analysis__in=chunk).order_by("tag__name")
    for pk, name in pairs.values_list("analysis_id", "tag__name"):
        tags.setdefault(pk, []).append(name)
    return tags


_ALONG: Mapping[str, Callable[[Sequence[int]], Mapping[int, list[Any]]]] = {
    "tags": _tags_of,
    "speeds": speeds_of,
}
"""Fields that are lists, read from tables of their own."""


def _plain(value: Value) -> csv_text.Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else value
