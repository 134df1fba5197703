"""Settings of a step that save memory at the cost of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import ZERO, Attention, CrossEntropy, Method, Parallelism, Precision, Recompute
from ..core.fields import Described, Group, Interval
from ..core.optimizers import Optimizer
from ..models.tasks import Task
from .contradiction import IN_PARTS, OFF, ON, Contradiction, is_of_a_package, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class Savers:
    """Settings of a step that save memory at the cost of time."""

    gradient_checkpointing: Annotated[
        bool,
        Described(
            "Gradient checkpointing",
            "Recomputes activations in backward, layer by layer: less memory, slower.",
            Group.SAVERS,
            chip="checkpointing",
        ),
    ] = False
    checkpoint_every: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Checkpoint every",
            "Recomputes one layer in this many. 2 saves about half as much memory as 1, and "
            "costs half the time.",
            Group.SAVERS,
            unit="layers",
            chip="1 layer in {} recomputed",
        ),
    ] = 1
    recompute: Annotated[
        Recompute,
        Described(
            "Recompute",
            "What a checkpointed layer computes again in backward. cheap costs little time and "
            "saves less memory.",
            Group.SAVERS,
            chip="{} parts recomputed",
        ),
    ] = Recompute.ALL
    activation_offload: Annotated[
        bool,
        Described(
            "Offload activations",
            "Keeps what backward needs in the host's memory. With gradient checkpointing, that is "
            "the input of each layer.",
            Group.SAVERS,
            chip="activations offloaded",
        ),
    ] = False
    optimizer_offload: Annotated[
        bool,
        Described(
            "Offload optimizer",
            "Keeps the optimizer's state in the host's memory and updates weights there, as "
            "torchao does, or DeepSpeed with ZeRO. Saves much memory; the step is slow.",
            Group.SAVERS,
            chip="optimizer offloaded",
        ),
    ] = False
    cross_entropy: Annotated[
        CrossEntropy,
        Described(
            "Cross-entropy",
            "How a language model's loss is computed from its logits, which take the most memory "
            "where the vocabulary is large.",
            Group.SAVERS,
            chip="{} cross-entropy",
        ),
    ] = CrossEntropy.MODEL
    optimizer_in_backward: Annotated[
        bool,
        Described(
            "Optimizer in backward",
            "Updates each weight once its gradient is there, and drops the gradient: they never "
            "all exist at once.",
            Group.SAVERS,
            chip="optimizer in backward",
        ),
    ] = False


_KEEPS_LOGITS = one_of(*(method for method in Method if method.keeps_logits))
_IN_TILES = other_than(Method.SFT, *(method for method in Method if method.keeps_logits))

RULES = (
    Contradiction(
        {"checkpoint_every": other_than(1), "gradient_checkpointing": OFF},
        "without gradient checkpointing no layer is recomputed; switch it on or leave this at 1",
    ),
    Contradiction(
        {"recompute": other_than(Recompute.ALL)},
        "models of {workload.preset.package} recompute all of a layer; choose all",
        is_of_a_package,
    ),
    Contradiction(
        {"recompute": other_than(Recompute.ALL), "gradient_checkpointing": OFF},
        "without gradient checkpointing nothing is recomputed; switch it on or choose all",
    ),
    Contradiction(
        {"recompute": other_than(Recompute.ALL), "attention": one_of(Attention.FLEX)},
        "what is kept of compiled FlexAttention is not predicted; choose all, or sdpa",
    ),
    Contradiction(
        {"optimizer_offload": ON, "optimizer": other_than(Optimizer.ADAMW)},
        "on the host AdamW is predicted, torchao's default; choose adamw or switch it off",
    ),
    Contradiction(
        {"optimizer_offload": ON, "optimizer_in_backward": ON},
        "the host updates weights after backward; switch one of the two off",
    ),
    Contradiction(
        {"optimizer_offload": ON, "precision": one_of(Precision.FP16_MIXED)},
        "the gradient scaler cannot reach gradients on the host; choose bf16-mixed",
    ),
    Contradiction(
        {"optimizer_offload": ON, "parallelism": other_than(Parallelism.NONE, *ZERO)},
        "torchao's optimizer on the host is for one GPU, and DeepSpeed's for ZeRO; choose fsdp "
        "with cpu_offload instead",
    ),
    Contradiction(
        {"optimizer_offload": ON, "cpu_offload": ON},
        "offloaded shards take the optimizer with them; leave one of the two off",
    ),
    Contradiction(
        {
            "activation_offload": ON,
            "parallelism": other_than(Parallelism.NONE, Parallelism.FSDP),
        },
        "activations on the host are predicted for one GPU and with fsdp; leave it off or choose "
        "fsdp",
    ),
    Contradiction(
        {"activation_offload": ON, "cpu_offload": ON},
        "of activations and shards only one kind is predicted on the host; leave one of them off",
    ),
    Contradiction(
        {"activation_offload": ON},
        "models of {workload.preset.package} are not predicted with it; leave it off",
        is_of_a_package,
    ),
    Contradiction(
        {"cross_entropy": IN_PARTS, "tensor_parallel": other_than(1)},
        "a loss in parts is not predicted with a head that is split; choose model",
    ),
    Contradiction(
        {"recompute": other_than(Recompute.ALL), "tensor_parallel": other_than(1)},
        "layers that are split are not predicted with it; choose all",
    ),
    Contradiction(
        {"cross_entropy": IN_PARTS, "method": _IN_TILES},
        "TRL's trainer scores answers in tiles of logits by itself; choose model",
    ),
    Contradiction(
        {"cross_entropy": IN_PARTS, "method": _KEEPS_LOGITS},
        "TRL's trainer keeps all logits; choose model",
    ),
    Contradiction(
        {"cross_entropy": IN_PARTS, "task": other_than(Task.CAUSAL_LANGUAGE_MODELLING, None)},
        "only causal language models have their loss in parts; choose model",
    ),
    Contradiction(
        {
            "optimizer_in_backward": ON,
            "optimizer": one_of(*(one for one in Optimizer if not one.spec.takes_one_weight)),
        },
        "there is one optimizer for each weight; switch it off or choose adamw",
    ),
    Contradiction(
        {"optimizer_in_backward": ON, "method": other_than(Method.SFT)},
        "TRL's trainers step after the backward pass; switch it off",
    ),
    Contradiction(
        {"optimizer_in_backward": ON, "task": one_of(Task.TEXT_TO_IMAGE)},
        "diffusers' scripts step after the backward pass; switch it off",
    ),
    Contradiction(
        {"optimizer_in_backward": ON, "gradient_accumulation": other_than(1)},
        "gradients add up over micro-batches, so they have to exist; switch one of the two off",
    ),
    Contradiction(
        {"optimizer_in_backward": ON, "precision": one_of(Precision.FP16_MIXED)},
        "the gradient scaler looks at all gradients before a step; choose bf16-mixed",
    ),
    Contradiction(
        {"optimizer_in_backward": ON, "parallelism": other_than(Parallelism.NONE)},
        "gradients are averaged among the GPUs first; switch it off or use one GPU",
    ),
)
