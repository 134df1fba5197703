"""The features of a training run: for each, its fields and the settings it does not combine with.

No torch in here: the site reads them too. :class:`~engine.interface.workload.Workload` has all
fields, and :data:`CONTRADICTIONS` all rules. A new field stands in the module of its feature.
"""

from __future__ import annotations

from . import (
    adapters,
    context_parallel,
    data_parallel,
    evaluation,
    expert_parallel,
    fsdp,
    lengths,
    method,
    pipeline_parallel,
    savers,
    sharing,
    tensor_parallel,
    training,
    zero,
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
    *tensor_parallel.RULES,
    *context_parallel.RULES,
    *expert_parallel.RULES,
    *pipeline_parallel.RULES,
    *sharing.PARTS_RULES,
    *data_parallel.RULES,
    *fsdp.RULES,
    *zero.RULES,
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
