"""CSV that can be streamed and that no spreadsheet evaluates as formulas."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain

from django.http import StreamingHttpResponse

Cell = str | int | float | None

_WIDE = "\uff1d\uff0b\uff0d\uff20"
"""Full-width forms, which East Asian spreadsheets treat like the narrow ones."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", *_WIDE)


class _Echo:
    """A file whose ``write`` returns the text."""

    def write(self, text: str) -> str:
        return text


def csv_lines(rows: Iterable[Iterable[Cell]]) -> Iterator[str]:
    """One line per row; text that looks like a formula is prefixed with an apostrophe."""
    writer = csv.writer(_Echo())
    for row in rows:
        yield writer.writerow([_guarded(cell) for cell in row])


def _guarded(cell: Cell) -> str | int | float:
    if isinstance(cell, str) and cell.lstrip().startswith(_FORMULA_STARTS):
        return f"'{cell}"
    return "" if cell is None else cell


def csv_file(
    name: str, head: Iterable[str], lines: Iterable[Iterable[Cell]]
) -> StreamingHttpResponse:
    """A download, streamed, of a few lines; :mod:`.downloads` bounds long ones."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    text = csv_lines(chain([head], lines))
    return StreamingHttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)
