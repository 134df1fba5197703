"""A row of the ladder that the page shows beside the analysis's decision, without being one."""

from __future__ import annotations

from dataclasses import dataclass

from analyses.figures.chips import chips
from analyses.models import Analysis
from analyses.pages.analysis.ladder import Ladder


@dataclass(frozen=True)
class Compared:
    """The shown row, and the decision that all other places have.

    Attributes:
        name: The row's moves, as the ladder names them.
        chips: The chips of the analysis with the row's settings.
        decision: The decision in one sentence; empty where the analysis has none.
    """

    name: str
    chips: list[str]
    decision: str

    @classmethod
    def of(cls, analysis: Analysis, ladder: Ladder | None) -> Compared | None:
        """The row that a page shows; ``None`` where it shows the decision."""
        row = ladder.shown if ladder and ladder.result else None
        if row is None:
            return None
        stored = analysis.result or {}
        return cls(
            name=row.name,
            chips=chips(analysis, row.rung.fields),
            decision=stored.get("decision") or stored.get("verdict") or "",
        )
