"""The one rule behind every decision: whether a change is worth it.

A new batch or setting costs its reader a try, perhaps a new search for the learning rate. So it is
recommended only where the speedup is large enough for that, and sure enough. Otherwise the decision
is to keep what there is, and nothing counts as saved.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..interface.result import Source
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
