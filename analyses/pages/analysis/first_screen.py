"""The first screen of an answer: the GPU's memory today and then, and what the change is worth.

The numbers are those of the stored decision, as lists, totals and the API have them; other
assumptions that a reader tries change none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyses.charts.breakdown import MemoryBar, used_bytes
from analyses.charts.picture import Fit, fit_of
from analyses.formatting import Card
from analyses.savings.estimate import estimate_figures
from engine.answer.amounts import Answered
from engine.answer.figures import COST, LARGEST_BATCH, SPEED, Figure
from engine.core.numbers import share, whole
from engine.core.sizes import gib
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source, Trial

_CARDS = 3


@dataclass(frozen=True)
class UseBar:
    """The GPU memory that one batch uses, as one bar on the scale of the GPU's.

    Attributes:
        role: ``current`` is red, ``recommended`` green.
        tone: ``unsure`` for a recommended batch that may not fit; else the role.
        used: The memory that it takes of the GPU's.
        rest: Whether it fits, and what is unused, or what it lacks.
        width: The bar's end in percent of the drawing.
        limit: The end of the GPU's memory in percent of the drawing.
    """

    role: str
    tone: str
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
        [
            use_bar(bar.role, _title(bar, result), bar.trial, result.gpu.total_bytes, bar.limit)
            for bar in bars
            if bar.used_bytes is not None
        ],
        _cards(answered, result),
    )


def use_bar(role: str, title: str, trial: Trial, total: int, limit: float) -> UseBar:
    """The use of a GPU by one batch.

    Args:
        role: ``current`` or ``recommended``.
        title: The batch, in words.
        trial: Its trial, of known memory.
        total: Bytes that the GPU has.
        limit: The end of the GPU's memory in percent of the drawing.
    """
    used = used_bytes(trial) or 0
    is_unsure = role == "recommended" and fit_of(trial, total) is Fit.UNCERTAIN
    return UseBar(
        role=role,
        tone="unsure" if is_unsure else role,
        title=title,
        used=f"{gib(used)} of {gib(total)} ({share(used / total)})",
        rest=_rest(trial, used, total),
        source=trial.source,
        width=min(100.0, round(limit * used / total, 3)),
        limit=limit,
    )


def _rest(trial: Trial, used: int, total: int) -> str:
    fit = fit_of(trial, total)
    if fit is Fit.FITS:
        return f"fits, {gib(total - used)} unused ({share(1 - used / total)})"
    if fit is Fit.UNCERTAIN:
        return f"may fit, or need up to {gib((trial.device_used_high_bytes or total) - total)} more"
    # Within the GPU's memory, it fails by what other processes or the allocator's pieces take.
    lacking = f", {gib(used - total)} too much" if used > total else ""
    return f"does not fit{lacking}"


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
