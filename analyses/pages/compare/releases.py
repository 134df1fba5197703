"""Parts of a step that differ between analyses with different software, and equal otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from analyses.models import Analysis
from analyses.pages.compare.columns import Column
from engine.answer.release_comparison import (
    ReleaseComparison,
    compare_releases,
    difference_between,
    release_order,
    sides,
    why_not_comparable,
)
from engine.answer.step_differences import MemoryDifference, TimeDifference
from engine.core.numbers import milliseconds, signed, whole
from engine.core.sizes import gib, gib_number
from engine.interface.request import TRIAL_FIELDS
from engine.interface.result import AnalysisResult

_SOFTWARE = "software"


@dataclass(frozen=True)
class ReleaseChange:
    """The change between two releases, the largest among those of a comparison.

    Attributes:
        before_id, after_id: The two analyses, the one with the older release first.
        releases: Number of analyses that differ in software only.
        comparison: What differs.
    """

    before_id: int
    after_id: int
    releases: int
    comparison: ReleaseComparison

    @property
    def heads(self) -> tuple[str, str]:
        """The versions that differ, before and after."""
        return sides(self.comparison.before.software, self.comparison.after.software)

    @property
    def tables(self) -> list[ReleaseTable]:
        """The tables of the page; those without a difference are left out."""
        tables = [
            ReleaseTable(
                "Memory at the peak, by operation",
                "GiB added",
                [_of_tensors(one) for one in self.comparison.tensors],
            ),
            ReleaseTable(
                "Memory at the peak, by module",
                "GiB added",
                [_of_module(one) for one in self.comparison.modules],
            ),
            ReleaseTable(
                "Kernel time, by operation",
                "ms added",
                [_of_kernels(one) for one in self.comparison.operations],
            ),
        ]
        return [table for table in tables if table.rows]


@dataclass(frozen=True)
class ReleaseTable:
    """One kind of differences, the largest first.

    Attributes:
        added: Heading of the differences, with their unit.
    """

    title: str
    added: str
    rows: list[ReleaseRow]


@dataclass(frozen=True)
class ReleaseRow:
    """One difference as text.

    Attributes:
        name: The module or operator.
        note: What else tells it from others; may be empty.
        is_more: Whether the newer release takes more.
    """

    name: str
    note: str
    before: str
    after: str
    added: str
    is_more: bool


def release_change(columns: Sequence[Column], base: int | None) -> ReleaseChange | None:
    """The largest change between neighbouring releases; ``None`` where no two are comparable.

    Args:
        columns: The analyses; those count that differ from the baseline in software only.
        base: The baseline.
    """
    baseline = next((column for column in columns if column.pk == base), None)
    if baseline is None:
        return None
    alike = [
        (column.pk, column.result)
        for column in columns
        if column.result is not None
        and _apart_from_software(column.analysis) == _apart_from_software(baseline.analysis)
    ]
    alike.sort(key=lambda one: release_order(one[1].software))
    changes = [pair for pair in pairwise(alike) if not why_not_comparable(pair[0][1], pair[1][1])]
    if not changes:
        return None
    (before_id, before), (after_id, after) = max(changes, key=_size)
    versions = {str(release_order(result.software)) for _, result in alike}
    return ReleaseChange(before_id, after_id, len(versions), compare_releases(before, after))


def _size(pair: tuple[tuple[int, AnalysisResult], ...]) -> tuple[bool, int, float]:
    return difference_between(pair[0][1], pair[1][1])


def _apart_from_software(analysis: Analysis) -> list[object]:
    """The settings that decide a trial, and the model or script, without the software."""
    asked = analysis.request
    fields = [asked.get(name) for name in ("gpu", *TRIAL_FIELDS) if name != _SOFTWARE]
    return [
        *fields,
        analysis.model,
        bool(analysis.program_hash),
        analysis.measured_gpu,
        analysis.goal,
    ]


def _of_tensors(one: MemoryDifference) -> ReleaseRow:
    named = " · ".join(filter(None, [one.operation, one.category.replace("_", " ")]))
    return _of_memory(one, named)


def _of_module(one: MemoryDifference) -> ReleaseRow:
    return _of_memory(one, "")


def _of_memory(one: MemoryDifference, note: str) -> ReleaseRow:
    return ReleaseRow(
        one.module or "Outside modules",
        note,
        _counted(one.before_count, gib(one.before_bytes)),
        _counted(one.after_count, gib(one.after_bytes)),
        signed(one.added_bytes, gib_number),
        one.added_bytes > 0,
    )


def _of_kernels(one: TimeDifference) -> ReleaseRow:
    return ReleaseRow(
        one.operation,
        "",
        _counted(one.before_count, f"{milliseconds(one.before_seconds)} ms"),
        _counted(one.after_count, f"{milliseconds(one.after_seconds)} ms"),
        signed(one.added_seconds, milliseconds),
        one.added_seconds > 0,
    )


def _counted(count: int, amount: str) -> str:
    return f"{amount} in {whole(count)}" if count else "none"
