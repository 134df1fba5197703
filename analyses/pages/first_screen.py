"""The first screen of an answer: the GPU's memory today and then, and what the change is worth.

The numbers are those of the stored decision, as lists, totals and the API have them; other
assumptions that a reader tries change none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyses.charts.breakdown import MemoryBar
from analyses.formatting import Card
from analyses.savings.estimate import estimate_figures
from engine.answer.amounts import Answered
from engine.answer.figures import COST, LARGEST_BATCH, SPEED, Figure
from engine.core.numbers import share, whole
from engine.core.sizes import gib
from engine.interface.result import AnalysisResult, Source

_CARDS = 3


@dataclass(frozen=True)
class UseBar:
    """The GPU memory that one batch uses, as one bar on the scale of the GPU's.

    Attributes:
        role: ``current`` is red, ``recommended`` green.
        used: The memory that it takes of the GPU's.
        rest: What is unused, or what it lacks.
        width: The bar's end in percent of the drawing.
        limit: The end of the GPU's memory in percent of the drawing.
    """

    role: str
    title: str
    used: str
    rest: str
    source: Source
    width: float
    limit: float


@dataclass(frozen=True)
class FirstScreen:
    """The bars and cards under the decision; without a memory, no bars."""

    bars: list[UseBar]
    cards: list[Card]


def first_screen(answered: Answered, bars: list[MemoryBar]) -> FirstScreen:
    """The first screen of an answer that has a result.

    Args:
        answered: The answer.
        bars: Its memory at the current and the recommended batch, by category.
    """
    result = answered.result
    if result is None:
        return FirstScreen([], [])
    return FirstScreen(
        [_use_bar(bar, result) for bar in bars if bar.used_bytes is not None],
        _cards(answered, result),
    )


def _use_bar(bar: MemoryBar, result: AnalysisResult) -> UseBar:
    used, total = bar.used_bytes or 0, result.gpu.total_bytes
    if used <= total:
        rest = f"{gib(total - used)} unused ({share(1 - used / total)})"
    else:
        rest = f"{gib(used - total)} too much"
    return UseBar(
        role=bar.role,
        title=_title(bar, result),
        used=f"{gib(used)} of {gib(total)} ({share(used / total)})",
        rest=rest,
        source=bar.source,
        width=min(100.0, round(bar.limit * used / total, 3)),
        limit=bar.limit,
    )


def _title(bar: MemoryBar, result: AnalysisResult) -> str:
    batch = f"batch {whole(bar.batch_size)}"
    if bar.role == "current":
        return f"Without the changes: {batch}" if _has_no_batch(result) else f"Today: {batch}"
    if _has_no_batch(result):
        return f"To start with: {batch}"
    if result.today is not None:
        return f"Then: {batch} with the changes"
    kept = result.recommended_batch_size == result.current_batch_size
    return f"Today and then: {batch}" if kept else f"Then: {batch}"


def _has_no_batch(result: AnalysisResult) -> bool:
    return result.current_batch_size is None


def _cards(answered: Answered, result: AnalysisResult) -> list[Card]:
    """Speedup, cost per run and yearly savings; where nothing compares, what the batch gives."""
    if result.savings is not None:
        return estimate_figures(result, adopted=bool(answered.is_adopted))[:_CARDS]
    batch = f"at batch {whole(result.recommended_batch_size)}"
    figures = ((SPEED, batch), (COST, batch), (LARGEST_BATCH, "that fits"))
    return [_card(figure, note, answered) for figure, note in figures]


def _card(figure: Figure, where: str, answered: Answered) -> Card:
    amount = figure.of(answered)
    note = f"{where}, {amount.note}" if amount and amount.note else where
    sources = amount.sources if amount else ()
    return Card(figure.label, figure.shown(amount), note, sources)
