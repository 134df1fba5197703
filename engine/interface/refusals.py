"""Settings of a request that its GPU, or the global batch to keep, does not allow."""

from __future__ import annotations

from ..core.choices import Attention, Precision
from ..gpus import Gpu
from .workload import Workload


def refused_on_gpu(workload: Workload, gpu: Gpu) -> dict[str, str]:
    """Settings that the GPU cannot run, or the engine cannot predict; messages by field."""
    wrong = {}
    precision = workload.precision
    if precision in (Precision.BF16_MIXED, Precision.BF16_TRUE) and gpu.bf16_flops is None:
        wrong["precision"] = f"{gpu.display_name} has no bf16; choose fp16-mixed or fp32"
    elif precision is Precision.TF32 and gpu.tf32_flops is None:
        wrong["precision"] = f"{gpu.display_name} has no TF32; choose fp16-mixed or fp32"
    if workload.attention is Attention.FLASH and gpu.compute_capability < 8.0:
        wrong["attention"] = f"{gpu.display_name} cannot run FlashAttention; choose sdpa"
    if workload.compile:
        wrong["compile"] = (
            "compiled steps cannot be predicted; measure them (gpu local), or leave it off to "
            "predict the eager step"
        )
    return wrong


def refused_global_batch(
    size: int, current: int | None, accumulated: int, gpus: int, multiple: int
) -> dict[str, str]:
    """A global batch that micro-batches do not add up to; messages by field.

    Args:
        size: The global batch, in samples.
        current: Samples of a micro-batch on one GPU today; ``None`` without one yet.
        accumulated: Micro-batches per optimizer step today.
        gpus: GPUs that train on batches of their own.
        multiple: The batches to choose from are multiples of this.
    """
    if current is None:
        return _refused_alone(size, accumulated, gpus, multiple)
    today = current * accumulated * gpus
    if accumulated > 1 and size != today:
        message = (
            f"{accumulated} micro-batches of {current:,} on {gpus} GPU(s) make {today:,}, not "
            f"{size:,}; enter that, or leave gradient_accumulation out"
        )
        return {"global_batch_size": message}
    if size % today:
        message = (
            f"{size:,} is not a multiple of the {today:,} samples of a micro-batch of "
            f"{current:,} on {gpus} GPU(s); change it or current_batch_size"
        )
        return {"global_batch_size": message}
    return {}


def _refused_alone(size: int, accumulated: int, gpus: int, multiple: int) -> dict[str, str]:
    """A global batch that none of the batches to choose from divides."""
    least = multiple * gpus
    if accumulated > 1:
        return {"gradient_accumulation": "it follows from the global batch; leave it out"}
    if size % least:
        message = (
            f"{size:,} is not a multiple of {least:,}, the least batch on "
            f"{gpus} GPU(s); change it or batch_multiple"
        )
        return {"global_batch_size": message}
    return {}
