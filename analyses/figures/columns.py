"""The numbers that an analysis has in columns of its own, so that lists need not read results."""

from __future__ import annotations

from analyses.models import Analysis
from analyses.results.decided import decided_moves
from engine.answer.amounts import speedup_words
from engine.answer.figures import BY_NAME, CURRENT_BATCH, SPEEDUP
from engine.answer.ladder import listed
from engine.answer.worth import gain_by
from engine.core.numbers import UNKNOWN, whole
from engine.interface.trial import Source


def stored(analysis: Analysis, name: str) -> str:
    """A number of an analysis in a list, where the heading says its unit.

    Args:
        analysis: Its result need not be loaded.
        name: Of a number with a column of that name.
    """
    if name == SPEEDUP.name:
        return _speedup(analysis)
    value = getattr(analysis, name)
    if name == CURRENT_BATCH.name and value is None:
        return "none yet"
    return BY_NAME[name].number(value)


def _speedup(analysis: Analysis) -> str:
    if analysis.speedup is None or not analysis.source:
        return UNKNOWN
    gain = gain_by(analysis.speedup, analysis.has_gain, Source(analysis.source))
    return speedup_words(analysis.speedup, gain)


def other_moves(analysis: Analysis) -> str:
    """The moves of its decision besides the batch, as text; empty where there are none."""
    return listed([move for move in decided_moves(analysis) if not move.startswith("batch ")])


def change_of(analysis: Analysis) -> str:
    """Its decision as a change, such as ``batch 16 to 128`` or ``bf16, batch 200``."""
    now, then = map(whole, (analysis.current_batch_size, analysis.recommended_batch_size))
    return ", ".join(decided_moves(analysis)) or f"batch {now} to {then}"


def label(name: str) -> str:
    """The label of a number, beside the batch that it belongs to."""
    return BY_NAME[name].label


def number(value: float | None, name: str) -> str:
    """A value of a number without its unit, for a column whose heading has it."""
    return BY_NAME[name].number(value)
