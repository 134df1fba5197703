"""What does not combine with what in a workload, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .choices import Adapter, Attention, Optimizer, Parallelism, Precision, Quantization
from .models.diffusion import IMAGE_MULTIPLE
from .models.tasks import Task

if TYPE_CHECKING:
    from .workload import Workload


@dataclass(frozen=True)
class Contradiction:
    """Settings that contradict each other.

    Attributes:
        field: The one to change.
        holds: Whether a workload has them.
        message: What to do, with the workload's fields in braces.
    """

    field: str
    holds: Callable[[Workload], bool]
    message: str


def contradictions(workload: Workload) -> dict[str, str]:
    """Settings of a workload that contradict each other, by the field to change."""
    return {
        one.field: one.message.format(workload=workload)
        for one in CONTRADICTIONS
        if one.holds(workload)
    }


_IN_FP32 = (Precision.FP32, Precision.TF32)
_NOT_ON_SHARDS = (Optimizer.ADAFACTOR, Optimizer.ADAMW_8BIT)
# transformers' Adafactor mixes shards with whole tensors; bitsandbytes' kernels read past a shard's
# end (https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1633).


def _is_quantized(workload: Workload) -> bool:
    return workload.quantization is not Quantization.NONE


CONTRADICTIONS = (
    Contradiction(
        "frozen_backbone",
        lambda workload: workload.lora_rank is not None and workload.frozen_backbone,
        "LoRA freezes the backbone already; choose one of the two",
    ),
    Contradiction(
        "adapter",
        lambda workload: workload.adapter is Adapter.DORA and workload.lora_rank is None,
        "DoRA needs a LoRA rank too",
    ),
    Contradiction(
        "adapter",
        lambda workload: workload.adapter is Adapter.DORA and _is_quantized(workload),
        "DoRA on 4-bit weights is not predicted; choose lora or no quantization",
    ),
    Contradiction(
        "modules_to_save",
        lambda workload: bool(workload.modules_to_save) and workload.lora_rank is None,
        "without LoRA all modules are trained; leave it empty or set a LoRA rank",
    ),
    Contradiction(
        "modules_to_save",
        lambda workload: bool(workload.modules_to_save) and workload.task is Task.TEXT_TO_IMAGE,
        "diffusers' scripts train adapters alone; leave it empty",
    ),
    Contradiction(
        "quantization",
        lambda workload: _is_quantized(workload) and workload.parallelism is Parallelism.FSDP,
        "4-bit weights are not predicted with fsdp; choose ddp or none",
    ),
    Contradiction(
        "quantization",
        lambda workload: _is_quantized(workload) and bool(workload.preset.package),
        "4-bit weights are not predicted for models of {workload.preset.package}; choose none",
    ),
    Contradiction(
        "quantization",
        lambda workload: _is_quantized(workload) and workload.lora_rank is None,
        "4-bit weights are not trained themselves; set a LoRA rank too",
    ),
    Contradiction(
        "attention",
        lambda workload: workload.attention is Attention.FLASH and workload.precision in _IN_FP32,
        "FlashAttention needs half precision; choose bf16-mixed or sdpa",
    ),
    Contradiction(
        "attention",
        lambda workload: workload.attention is Attention.EAGER and bool(workload.preset.package),
        "models of {workload.preset.package} use PyTorch's; choose sdpa",
    ),
    Contradiction(
        "image_size",
        lambda workload: (
            workload.task is Task.TEXT_TO_IMAGE and (workload.image_size or 0) % IMAGE_MULTIPLE != 0
        ),
        f"enter a multiple of {IMAGE_MULTIPLE}",
    ),
    Contradiction(
        "parallelism",
        lambda workload: (
            workload.task is Task.TEXT_TO_IMAGE and workload.parallelism is Parallelism.FSDP
        ),
        "frozen encoders are not predicted with fsdp; choose ddp",
    ),
    Contradiction(
        "parallelism",
        lambda workload: workload.parallelism is Parallelism.NONE and workload.world_size > 1,
        "choose ddp or fsdp to share among {workload.world_size} GPUs",
    ),
    Contradiction(
        "world_size",
        lambda workload: workload.parallelism is not Parallelism.NONE and workload.world_size == 1,
        "give the number of GPUs that share the work, 2 or more",
    ),
    Contradiction(
        "gradient_as_bucket_view",
        lambda workload: (
            workload.gradient_as_bucket_view and workload.parallelism is not Parallelism.DDP
        ),
        "only ddp has buckets; leave it off or choose ddp",
    ),
    Contradiction(
        "use_cache",
        lambda workload: bool(workload.use_cache) and not workload.preset.caches(workload.task),
        "{workload.preset.display_name} returns no keys and values in training; leave it empty",
    ),
    Contradiction(
        "optimizer",
        lambda workload: (
            workload.parallelism is Parallelism.FSDP and workload.optimizer in _NOT_ON_SHARDS
        ),
        "{workload.optimizer} does not run on FSDP's shards; choose adamw",
    ),
)
"""Of two for the same field, the later one is told."""
