"""Layers that several GPUs split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.fields import Described, Group, Interval
from .contradiction import GIVEN, ON, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class TensorParallel:
    """Layers that several GPUs split."""

    tensor_parallel: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Tensor parallel GPUs",
            "This many GPUs split each layer and train on the same batch. The batch size is that "
            "of such a group.",
            Group.SEVERAL,
            chip="layers split among {:,}",
        ),
    ] = 1
    sequence_parallel: Annotated[
        bool,
        Described(
            "Sequence parallel",
            "Splits what lies between the layers along the sequence, among the GPUs that split "
            "each layer.",
            Group.SEVERAL,
            chip="sequence parallel",
        ),
    ] = False


RULES = (
    Contradiction(
        {"sequence_parallel": ON, "pipeline_parallel": other_than(1)},
        "transformers' stages need the whole sequence; leave it off",
    ),
    Contradiction(
        {"sequence_parallel": ON, "tensor_parallel": one_of(1)},
        "without tensor parallelism there is nothing to split; leave it off",
    ),
    Contradiction(
        {"sequence_parallel": ON, "sequence_length": GIVEN},
        "the GPUs have to divide the sequence length evenly; leave it off or change one",
        lambda workload: (
            (workload.sequence_length or 0) % (workload.tensor_parallel * workload.context_parallel)
            != 0
        ),
    ),
)
