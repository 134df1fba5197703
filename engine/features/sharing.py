"""Division of the work among several GPUs, by all degrees together."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.choices import Parallelism
from . import (
    context_parallel,
    data_parallel,
    expert_parallel,
    fsdp,
    pipeline_parallel,
    tensor_parallel,
    zero,
)
from .contradiction import DEGREES, NOT_IN_PARTS, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class Sharing(
    zero.Zero,
    pipeline_parallel.PipelineParallel,
    expert_parallel.ExpertParallel,
    context_parallel.ContextParallel,
    tensor_parallel.TensorParallel,
    fsdp.Fsdp,
    data_parallel.DataParallel,
):
    """Division of the work among several GPUs."""

    @property
    def parts_of_model(self) -> int:
        """Number of GPUs that train on the same batch, by the degrees."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @property
    def data_parallel(self) -> int:
        """Number of groups of GPUs that train on batches of their own."""
        return max(1, self.world_size // self.parts_of_model)

    @property
    def weight_sharers(self) -> int:
        """Number of GPUs that would hold the same weights, so that FSDP may shard them."""
        return self.data_parallel * self.context_parallel

    def stage_of(self, rank: int) -> int:
        """The pipeline stage of a GPU; those of a stage stand next to one another."""
        return rank * self.pipeline_parallel // self.world_size

    @property
    def shard_count(self) -> int:
        """Number of GPUs that FSDP or ZeRO splits the weights among; 1 where they do not."""
        if self.parallelism is Parallelism.ZERO_3:
            return self.world_size
        if self.parallelism is not Parallelism.FSDP:
            return 1
        return self.shard_size or self.weight_sharers


_RULES_OF_DEGREES = (
    Contradiction(
        {
            "parallelism": one_of(Parallelism.NONE),
            "world_size": other_than(1),
            **dict.fromkeys((*DEGREES, "context_parallel"), one_of(1)),
        },
        "choose ddp, fsdp or zero-3 to share among several GPUs",
    ),
    *(
        Contradiction(
            {"parallelism": one_of(Parallelism.NONE), degree: other_than(1)},
            "choose fsdp for the GPUs beyond those that have parts of the model",
            lambda workload: workload.data_parallel > 1,
        )
        for degree in DEGREES
    ),
    *(
        Contradiction(
            {
                "parallelism": other_than(Parallelism.NONE, Parallelism.FSDP),
                degree: other_than(1),
            },
            "parts of a model go with fsdp only; choose fsdp, or none if no GPUs are left over",
        )
        for degree in DEGREES
    ),
    *(
        Contradiction(
            {"parallelism": one_of(Parallelism.FSDP), degree: other_than(1)},
            "no GPUs are left over to shard among; choose none or more GPUs",
            lambda workload: workload.weight_sharers == 1,
        )
        for degree in DEGREES
    ),
    *(
        Contradiction(
            {degree: other_than(1)},
            "enter numbers whose product divides the number of GPUs",
            lambda workload: workload.world_size % workload.parts_of_model != 0,
        )
        for degree in (*DEGREES, "context_parallel")
    ),
)

_RULES_OF_PARTS = tuple(
    Contradiction(
        {name: values, degree: other_than(1)},
        "not predicted for a model in parts on several GPUs; leave it as it is by default",
    )
    for degree in (*DEGREES, "expert_parallel")
    for name, values in NOT_IN_PARTS
)

RULES = (
    *_RULES_OF_DEGREES,
    *tensor_parallel.RULES,
    *context_parallel.RULES,
    *expert_parallel.RULES,
    *pipeline_parallel.RULES,
    *_RULES_OF_PARTS,
    *data_parallel.RULES,
    *fsdp.RULES,
    *zero.RULES,
)
"""Contradictions of all forms of parallelism; of two for the same field, the later one wins."""
