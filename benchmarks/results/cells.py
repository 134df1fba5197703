"""Cells of the tables of the result files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.results.files import Result

Read = Callable[[str], Result]
"""Reads a result by its name."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(headings)
    return "\n".join(f"| {' | '.join(row)} |" for row in [headings, rule, *rows])


def load(result: Result) -> str:
    """The load of the machine, where it matters most."""
    return f" (load {result.machine.load:.0f} before, {result.machine.cores} cores)"


def percent(share: float) -> str:
    return "0" if share == 0 else f"{100 * share:.1f}%"


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms"
