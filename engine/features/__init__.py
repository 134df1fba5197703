"""The features of a training run: for each, its fields and the settings it does not combine with.

No torch in here: the site reads them too. :class:`~engine.interface.workload.Workload` has all
fields, and :data:`CONTRADICTIONS` all rules. A new field stands in the module of its feature.
"""

from __future__ import annotations

from . import (
    adapters,
    evaluation,
    lengths,
    method,
    savers,
    sharing,
    training,
)
from .contradiction import Contradiction, Settings, Values

__all__ = ["CONTRADICTIONS", "Contradiction", "Values", "contradictions"]

CONTRADICTIONS = (
    *method.RULES,
    *adapters.RULES,
    *training.RULES,
    *savers.RULES,
    *lengths.RULES,
    *sharing.RULES,
    *evaluation.RULES,
)
"""All contradictions; of two for the same field, the later one wins."""


def contradictions(workload: Settings) -> dict[str, str]:
    """Settings of a workload that contradict each other, by the field to change."""
    return {
        one.field: one.message.format(workload=workload)
        for one in CONTRADICTIONS
        if one.holds(workload)
    }
