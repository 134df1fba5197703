"""Optimizer state, gradients and weights in shards, by DeepSpeed's ZeRO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import ZERO, Parallelism, Precision
from ..core.fields import Described, Group, Interval
from ..core.optimizers import Optimizer
from ..models.tasks import Task
from .contradiction import GIVEN, ON, QUANTIZED, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class Zero:
    """Optimizer state, gradients and weights in shards, by DeepSpeed's ZeRO."""

    reduce_bucket_size: Annotated[
        int | None,
        Interval(ge=1, le=10_000_000_000),
        Described(
            "Reduce bucket size",
            'Gradients that DeepSpeed reduces at a time. Hugging Face\'s "auto" takes the hidden '
            "size squared.",
            Group.SEVERAL,
            unit="gradients",
            empty="500,000,000, as DeepSpeed",
            chip="buckets of {:,}",
        ),
    ] = None
    overlap_comm: Annotated[
        bool,
        Described(
            "Overlap communication",
            "ZeRO 1 or 2 reduces gradients while the backward pass goes on, which fills a second "
            "bucket meanwhile (overlap_comm). ZeRO 3 needs no second one.",
            Group.SEVERAL,
            chip="overlapped",
        ),
    ] = False

    @property
    def bucket_elements(self) -> int:
        """Gradients that DeepSpeed reduces at a time."""
        return self.reduce_bucket_size or 500_000_000


_FOR_ZERO = [one for one in Optimizer if one.spec.is_elementwise]

RULES = (
    Contradiction(
        {"cpu_offload": ON, "parallelism": one_of(*ZERO), "optimizer": other_than(Optimizer.ADAMW)},
        "DeepSpeed's optimizer on the host is predicted as AdamW; choose adamw or leave it off",
    ),
    Contradiction(
        {"reduce_bucket_size": GIVEN, "parallelism": other_than(*ZERO)},
        "only zero-1, zero-2 and zero-3 have it; leave it empty or choose one of them",
    ),
    Contradiction(
        {"overlap_comm": ON, "parallelism": other_than(Parallelism.ZERO_1, Parallelism.ZERO_2)},
        "only zero-1 and zero-2 make a second bucket for it; leave it off or choose one of them",
    ),
    Contradiction(
        {"precision": other_than(Precision.BF16_MIXED), "parallelism": one_of(*ZERO)},
        "DeepSpeed is predicted with weights in bf16 and fp32 copies; choose bf16-mixed",
    ),
    Contradiction(
        {"cpu_offload": ON, "quantization": QUANTIZED, "parallelism": one_of(*ZERO)},
        "ZeRO 3 takes more GPU memory for quantized weights with offload than without, says PEFT's "
        "guide, and not how much; leave it off or choose fsdp",
    ),
    Contradiction(
        {"optimizer": other_than(*_FOR_ZERO), "parallelism": one_of(*ZERO)},
        "this one is not predicted with ZeRO; choose adamw",
    ),
    Contradiction(
        {"parallelism": one_of(*ZERO), "task": one_of(Task.TEXT_TO_IMAGE)},
        "frozen encoders are not predicted with ZeRO; choose ddp",
    ),
)
