"""The one rule behind every decision: whether a change is worth it.

A new batch or setting costs its reader a try, perhaps a new search for the learning rate. So it is
recommended only where the speedup is large enough for that, and sure enough. Otherwise the decision
is to keep what there is, and nothing counts as saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ..interface.result import AnalysisResult
from ..interface.trial import Source
from .economics import Speedup

WORTH_PREDICTED = 1.05
"""The least predicted speedup of a change: published steps move as much between releases."""
SURELY_ABOVE = 1.02
"""Above it lies the whole interval of a predicted speedup that is worth a change."""
WORTH_MEASURED = 1.03
"""The least measured speedup of a change; in turn, every round has to be faster."""


@dataclass(frozen=True)
class Option:
    """A batch that could be trained with, and its speedup over the current one."""

    batch_size: int
    gained: Speedup


def is_worth_it(gained: Speedup, source: Source) -> bool:
    """Whether a change with this speedup is recommended.

    Args:
        gained: Speedup over today's settings.
        source: Source of the speedup; computed values count as predicted.
    """
    if source is Source.MEASURED:
        return gained.ratio >= WORTH_MEASURED and gained.is_gain
    return gained.ratio >= WORTH_PREDICTED and gained.low > SURELY_ABOVE


def may_be_worth_it(gained: Speedup, source: Source) -> bool:
    """Whether it would be recommended if only it were sure, so that a measurement may decide."""
    return gained.ratio >= least_speedup(source) and not is_worth_it(gained, source)


def least_speedup(source: Source) -> float:
    """The least ratio of a speedup that is worth a change."""
    return WORTH_MEASURED if source is Source.MEASURED else WORTH_PREDICTED


class Gain(Enum):
    """Whether a speedup is worth a change."""

    SURE = auto()
    PROBABLE = auto()
    """Large enough, but not sure: two short runs would show it."""
    NONE = auto()


def gain_by(ratio: float, has_gain: bool | None, source: Source) -> Gain:
    """The gain of a speedup for which only :func:`has_gain` is stored, without its interval."""
    if has_gain:
        return Gain.SURE
    is_unsure = source is not Source.MEASURED and ratio >= least_speedup(source)
    return Gain.PROBABLE if is_unsure else Gain.NONE


def gain_of(result: AnalysisResult) -> Gain:
    """The gain of a result; none without a speedup."""
    if result.speedup is None:
        return Gain.NONE
    return gain_by(result.speedup, has_gain(result), result.source)


def has_gain(result: AnalysisResult) -> bool:
    """Whether the recommended batch, with its moves, is worth a change.

    What was counted as saved says so, by the rule of the version that answered; where no hours are
    trained in a year, the interval does.
    """
    saved, ratio = result.savings, result.speedup
    low, high = result.speedup_low, result.speedup_high
    if ratio is None or ratio <= 1 or (low is not None and low <= 1):
        return False
    if saved is not None and saved.hours_per_run * saved.runs_per_year > 0:
        return saved.gpu_hours_per_year > 0
    if low is None or high is None:  # an older version stored no interval
        return saved is not None
    return is_worth_it(Speedup(ratio, low, high), result.source)
