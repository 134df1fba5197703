"""Weights, gradients and optimizer state in shards, by PyTorch's FSDP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import Parallelism, Quantization, ReduceDtype
from ..core.fields import Described, Group, Interval
from ..models.tasks import Task
from .contradiction import GIVEN, ON, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class Fsdp:
    """Weights, gradients and optimizer state in shards, by PyTorch's FSDP."""

    reshard_after_forward: Annotated[
        bool | None,
        Described(
            "Reshard after forward",
            "Whether FSDP frees a block's gathered weights after forward and gathers them again in "
            "backward. Off needs more memory and sends less, as ZeRO-2 does.",
            Group.SEVERAL,
            empty="as PyTorch: on, except for what is outside the blocks",
        ),
    ] = None
    reduce_dtype: Annotated[
        ReduceDtype,
        Described(
            "Gradient reduction",
            "The number format in which FSDP adds up gradients. Mixed precision often reduces in "
            "fp32.",
            Group.SEVERAL,
            chip="reduced in {}",
        ),
    ] = ReduceDtype.GATHERED
    shard_size: Annotated[
        int | None,
        Interval(ge=2, le=512),
        Described(
            "GPUs per shard group",
            "FSDP shards among this many GPUs and copies the shards to the other groups (hybrid "
            "sharding), such as 8 for one machine.",
            Group.SEVERAL,
            empty="all of them",
            chip="sharded among {:,}",
        ),
    ] = None
    cpu_offload: Annotated[
        bool,
        Described(
            "Offload shards",
            "FSDP or ZeRO 3 keeps its shards of weights, gradients and optimizer state in the "
            "host's memory, and the optimizer runs there.",
            Group.SEVERAL,
            chip="shards offloaded",
        ),
    ] = False


RULES = (
    Contradiction(
        {"parallelism": one_of(Parallelism.FSDP), "task": one_of(Task.TEXT_TO_IMAGE)},
        "frozen encoders are not predicted with fsdp; choose ddp",
    ),
    *(
        Contradiction(
            {name: values, "parallelism": other_than(Parallelism.FSDP)},
            "only fsdp has this; leave it as it is or choose fsdp",
        )
        for name, values in (
            ("reshard_after_forward", GIVEN),
            ("reduce_dtype", other_than(ReduceDtype.GATHERED)),
            ("shard_size", GIVEN),
        )
    ),
    Contradiction(
        {"cpu_offload": ON, "parallelism": other_than(Parallelism.FSDP, Parallelism.ZERO_3)},
        "only fsdp and zero-3 divide weights; leave it off, or with zero-1 and zero-2 offload the "
        "optimizer",
    ),
    Contradiction(
        {
            "quantization": one_of(Quantization.INT8),
            "parallelism": one_of(Parallelism.FSDP, Parallelism.ZERO_3),
        },
        "bitsandbytes' 8-bit layers hold on to whole weights, which cannot be divided; choose nf4, "
        "or ddp",
    ),
    Contradiction(
        {"shard_size": GIVEN, "parallelism": one_of(Parallelism.FSDP)},
        "enter a number that divides the number of GPUs and is smaller, or leave it empty",
        lambda workload: (
            workload.shard_size == workload.weight_sharers
            or workload.weight_sharers % (workload.shard_size or 1) != 0
        ),
    ),
    Contradiction(
        {"shard_size": GIVEN, "context_parallel": other_than(1)},
        "enter a multiple of the context parallel GPUs",
        lambda workload: (workload.shard_size or 0) % workload.context_parallel != 0,
    ),
)
