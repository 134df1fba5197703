"""The table of builds that were tried."""

from __future__ import annotations

from benchmarks.compat.cases import CASES
from benchmarks.compat.rows import Row, explanation, known_differences, reference_of, unequal
from benchmarks.results.cells import Read, table


def compat(read: Read) -> str:
    """A row for each build: how many answers are the reference's, and why the others are not."""
    figures = read("compat").figures
    rows, references = ([Row(**row) for row in figures[key]] for key in ("rows", "references"))
    return table(
        ["PyTorch", "transformers", "Python", "tried", "equal", "differences"],
        [
            [
                row.installed,
                row.transformers,
                row.python,
                row.made_on,
                f"{_equal(row, references)} of {len(row.answers) + len(row.failures)}",
                _differences(row, references) or "-",
            ]
            for row in rows
        ],
    )


def _equal(row: Row, references: list[Row]) -> int:
    return len(row.answers) + len(row.failures) - len(unequal(row, reference_of(row, references)))


def _differences(row: Row, references: list[Row]) -> str:
    """By reason, the cases that it explains."""
    by_reason: dict[str, list[str]] = {}
    found = unequal(row, reference_of(row, references))
    for case in (case.name for case in CASES if case.name in found):
        known = explanation(case, row.build, known_differences())
        reason = known.reason if known else f"not explained: {found[case]}"
        by_reason.setdefault(reason, []).append(case)
    return "; ".join(f"{', '.join(cases)}: {reason}" for reason, cases in by_reason.items())
