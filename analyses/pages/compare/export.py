"""The table of a comparison as Markdown and as CSV: the rows that the page shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyses.formatting import gpu_of, model_name
from analyses.pages.compare.columns import Column
from analyses.pages.compare.rows import Cell, ComparisonRow
from engine.core.markdown import plain, table
from engine.interface.trial import Source
from memorymark_site.operations import csv_text

Groups = Sequence[tuple[str, Sequence[ComparisonRow]]]
"""Rows under their titles."""


def markdown_of(
    title: str, verdict: str, columns: Sequence[Column], base: int | None, groups: Groups
) -> str:
    """The verdict and the table, for an issue, a wiki or a pull request."""
    heads = [
        f"{column.label} (#{column.pk}{', baseline' if column.pk == base else ''})"
        for column in columns
    ]
    lines = []
    for _, rows in groups:
        for row in rows:
            label = f"{row.label} ({_said(row.sources)})" if row.sources else row.label
            lines.append([label, *(_text(cell, not row.sources) for cell in row.cells)])
    parts = [f"## {plain(title)}", plain(verdict), table(["", *heads], lines)]
    return "\n\n".join(filter(None, parts)) + "\n"


def csv_of(columns: Sequence[Column], groups: Groups) -> Iterator[str]:
    """A line per row, unrounded; settings and what has no number as text."""
    heads: list[csv_text.Cell] = [
        f"#{column.pk} {model_name(column.analysis.model)} · {gpu_of(column.analysis)}"
        for column in columns
    ]
    lines: list[list[csv_text.Cell]] = [["row", "unit", "sources", *heads]]
    for _, rows in groups:
        for row in rows:
            sources = [_said(cell.sources) for cell in row.cells if cell.sources]
            values = [cell.text if cell.value is None else cell.value for cell in row.cells]
            lines.append([row.label, row.unit, "; ".join(dict.fromkeys(sources)), *values])
    return csv_text.csv_lines(lines)


def _text(cell: Cell, with_sources: bool) -> str:
    notes = [cell.note, cell.delta, cell.best]
    if with_sources:
        notes.append(_said(cell.sources))
    said = "; ".join(filter(None, notes))
    return f"{cell.text} ({said})" if said else cell.text


def _said(sources: Sequence[Source]) -> str:
    return ", ".join(sources)
