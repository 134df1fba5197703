"""What does not combine with what in a workload, in one table.

Errors, the form of a new analysis and docs/training.md are made from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapters import ADAPTERS
from .contradiction import Contradiction, Values
from .evaluation import EVALUATION
from .lengths import LENGTHS
from .methods import METHODS
from .savers import SAVERS
from .sharing import SHARING
from .training import TRAINING

if TYPE_CHECKING:
    from ..workload import Workload

__all__ = ["CONTRADICTIONS", "Contradiction", "Values", "contradictions"]

CONTRADICTIONS = (
    *METHODS,
    *ADAPTERS,
    *TRAINING,
    *SAVERS,
    *LENGTHS,
    *SHARING,
    *EVALUATION,
)
"""Of two for the same field, the later one is told."""


def contradictions(workload: Workload) -> dict[str, str]:
    """Settings of a workload that contradict each other, by the field to change."""
    return {
        one.field: one.message.format(workload=workload)
        for one in CONTRADICTIONS
        if one.holds(workload)
    }
