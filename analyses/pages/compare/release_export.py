"""Changes between two releases, as Markdown and as CSV: the tables that the page shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyses.pages.compare.releases import ReleaseChange
from engine.answer.step_differences import MemoryDifference, TimeDifference
from engine.core.markdown import plain, table
from memorymark_site.operations.csv_text import Cell, csv_lines

_COLUMNS = (
    "by", "module", "operation", "category", "unit", "source", "before", "after", "added",
    "before_count", "after_count",
)  # fmt: skip


def change_markdown(change: ReleaseChange) -> str:
    """The verdict and the tables, for an issue or a pull request."""
    found = change.comparison
    parts = [
        f"## {plain(' vs. '.join(change.heads))} ({plain(found.after.source)})",
        plain(found.verdict),
        plain(
            f"Analyses #{change.before_id} and #{change.after_id}, batch {found.after.batch_size} "
            f"on {found.gpu}. {' '.join(found.caveats)}"
        ),
    ]
    for shown in change.tables:
        rows = [
            [" · ".join(filter(None, (row.name, row.note))), row.before, row.after, row.added]
            for row in shown.rows
        ]
        parts += [f"### {shown.title}", table(["", *change.heads, shown.added], rows)]
    return "\n\n".join(parts) + "\n"


def change_csv(change: ReleaseChange) -> Iterator[str]:
    """A line per difference, unrounded; the heads of ``before`` and ``after`` name the releases."""
    found = change.comparison
    source = found.after.source
    versions = dict(zip(("before", "after"), change.heads, strict=True))
    heads: list[Cell] = [
        f"{name} ({versions[name]})" if name in versions else name for name in _COLUMNS
    ]
    lines = [
        *_in_memory("operation", found.tensors, source),
        *_in_memory("module", found.modules, source),
        *_in_time(found.operations, source),
    ]
    return csv_lines([heads, *lines])


def _in_memory(by: str, found: Sequence[MemoryDifference], source: str) -> Iterator[list[Cell]]:
    for one in found:
        yield [
            by, one.module, one.operation, one.category, "bytes", source, one.before_bytes,
            one.after_bytes, one.added_bytes, one.before_count, one.after_count,
        ]  # fmt: skip


def _in_time(found: Sequence[TimeDifference], source: str) -> Iterator[list[Cell]]:
    for one in found:
        yield [
            "kernel", "", one.operation, "", "seconds", source, one.before_seconds,
            one.after_seconds, one.added_seconds, one.before_count, one.after_count,
        ]  # fmt: skip
