"""Sequences that several GPUs have parts of (ring attention)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import Attention, CrossEntropy, Parallelism, Rotation
from ..core.fields import Described, Group, Interval
from ..models.tasks import Task
from .contradiction import GIVEN, NOT_IN_PARTS, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class ContextParallel:
    """Sequences that several GPUs have parts of (ring attention)."""

    context_parallel: Annotated[
        int,
        Interval(ge=1, le=256),
        Described(
            "Context parallel GPUs",
            "This many GPUs each have a part of every sequence and pass keys and values around "
            "(ring attention). The batch size is that of such a group.",
            Group.SEVERAL,
            chip="sequences split among {:,}",
        ),
    ] = 1
    context_rotation: Annotated[
        Rotation,
        Described(
            "Rotation of keys and values",
            "How they go around among context parallel GPUs.",
            Group.SEVERAL,
            chip="{} of keys and values",
        ),
    ] = Rotation.ALL_GATHER


_IN_CONTEXT = ("lora_rank", "cpu_offload", "cross_entropy", "activation_offload")
"""Fields of these that are predicted where GPUs have parts of a sequence."""

RULES = (
    Contradiction(
        {"pipeline_parallel": other_than(1), "context_parallel": other_than(1)},
        "transformers' stages need the whole sequence; leave one of the two at 1",
    ),
    Contradiction(
        {
            "parallelism": other_than(Parallelism.DDP, Parallelism.FSDP),
            "context_parallel": other_than(1),
        },
        "GPUs with parts of the same sequences share the weights; choose fsdp, or ddp",
    ),
    Contradiction(
        {"sequence_length": GIVEN, "context_parallel": other_than(1)},
        "enter a multiple of twice the context parallel GPUs, which have two pieces of a sequence "
        "each",
        lambda workload: (workload.sequence_length or 0) % (2 * workload.context_parallel) != 0,
    ),
    Contradiction(
        {
            "context_parallel": other_than(1),
            "task": other_than(Task.CAUSAL_LANGUAGE_MODELLING, None),
        },
        "only causal language models are predicted with it; leave it at 1",
    ),
    Contradiction(
        {"context_rotation": other_than(Rotation.ALL_GATHER), "context_parallel": one_of(1)},
        "without context parallelism nothing goes around; choose allgather",
    ),
    *(
        Contradiction(
            {name: values, "context_parallel": other_than(1)},
            "not predicted where GPUs have parts of a sequence; leave it as it is by default",
        )
        for name, values in (
            *((name, values) for name, values in NOT_IN_PARTS if name not in _IN_CONTEXT),
            ("attention", other_than(Attention.SDPA, Attention.FLASH)),
            ("cross_entropy", one_of(CrossEntropy.CHUNKED)),
        )
    ),
)
