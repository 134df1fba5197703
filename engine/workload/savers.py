"""What a step does to need less memory, at the cost of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..choices import CrossEntropy, Recompute
from ..fields import Described, Group, Interval


@dataclass(frozen=True, kw_only=True)
class Savers:
    """What a step does to need less memory, at the cost of time."""

    gradient_checkpointing: Annotated[
        bool,
        Described(
            "Gradient checkpointing",
            "Recomputes activations in backward, layer by layer: less memory, slower.",
            Group.SAVERS,
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
        ),
    ] = 1
    recompute: Annotated[
        Recompute,
        Described(
            "Recompute",
            "What a checkpointed layer computes again in backward. cheap costs little time and "
            "saves less memory.",
            Group.SAVERS,
        ),
    ] = Recompute.ALL
    activation_offload: Annotated[
        bool,
        Described(
            "Offload activations",
            "Keeps what backward needs in the host's memory. With gradient checkpointing, that is "
            "the input of each layer.",
            Group.SAVERS,
        ),
    ] = False
    optimizer_offload: Annotated[
        bool,
        Described(
            "Offload optimizer",
            "Keeps the optimizer's state in the host's memory and updates weights there, as "
            "torchao does, or DeepSpeed with ZeRO. Saves much memory; the step is slow.",
            Group.SAVERS,
        ),
    ] = False
    cross_entropy: Annotated[
        CrossEntropy,
        Described(
            "Cross-entropy",
            "How a language model's loss goes about its logits, which take the most memory where "
            "the vocabulary is large.",
            Group.SAVERS,
        ),
    ] = CrossEntropy.MODEL
    optimizer_in_backward: Annotated[
        bool,
        Described(
            "Optimizer in backward",
            "Updates each weight once its gradient is there, and drops the gradient: they never "
            "all exist at once.",
            Group.SAVERS,
        ),
    ] = False
