"""Predicts the time of a training step: a roofline over the operations of its trace.

A prediction made of assumed efficiencies, not a measurement. Its ratios (throughput at one batch
size over another) hold better than its absolute times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from engine.gpus import Gpu
from engine.tracing.trace import Operation
from engine.workload import Precision

COMPUTE_EFFICIENCY = 0.6
"""Assumed share of the peak FLOP rate that matrix products of training shapes reach."""
BANDWIDTH_EFFICIENCY = 0.75
"""Assumed share of the peak memory bandwidth that element-wise kernels reach."""
KERNEL_SECONDS = 5e-6
"""Assumed time for a kernel to start and drain on the GPU."""
HOST_SECONDS = 25e-6
"""Assumed time for Python and PyTorch to launch one operation of an eager step."""

MICRO_BATCHES_TRACED = 2
"""The most that a trace runs: from the second on, each is like the one before."""
_COLLECTIVE = "c10d."
_OF_A_MICRO_BATCH = ("inputs", "forward", "backward")


def predict_step_seconds(
    operations: Sequence[Operation],
    gpu: Gpu,
    precision: Precision,
    micro_batches: int = 1,
    link_bytes_per_second: float = math.inf,
) -> float:
    """Time of one training step, in seconds.

    Each operation takes the longer of computing and moving its bytes; the step takes the longest of
    all its kernels, of the host that launches them and of the link to other GPUs.

    Args:
        operations: The work of one step, as :func:`engine.tracing.tracer.trace` records it: of two
            micro-batches where a step accumulates that many or more.
        gpu: With its peak rates.
        precision: Says whether fp32 matrix products may use TF32.
        micro_batches: How many the step really accumulates: the second one traced stands for all
            from there on, and the optimizer runs once.
        link_bytes_per_second: How fast a GPU sends to others, where several share the work.
    """
    on_gpu = on_host = on_link = 0.0
    for operation, times in zip(operations, _runs(operations, micro_batches), strict=True):
        on_host += times * HOST_SECONDS
        if operation.name.startswith(_COLLECTIVE):
            on_link += times * operation.bytes_moved / link_bytes_per_second
            continue
        moving = operation.bytes_moved / (gpu.memory_bytes_per_second * BANDWIDTH_EFFICIENCY)
        rate = _peak_flops(operation, gpu, precision) * COMPUTE_EFFICIENCY
        on_gpu += times * (KERNEL_SECONDS + max(moving, operation.flops / rate))
    return max(on_gpu, on_host, on_link)


def _runs(operations: Sequence[Operation], micro_batches: int) -> Iterator[int]:
    """How often a step of so many micro-batches runs each operation of its trace.

    A micro-batch begins where its inputs come to the device. The first one makes the gradients,
    each later one adds to them, so that only the last one traced is repeated.
    """
    last = min(micro_batches, MICRO_BATCHES_TRACED)
    begun, before = 0, ""
    for operation in operations:
        begun += operation.phase == "inputs" != before
        before = operation.phase
        repeated = begun == last and operation.phase in _OF_A_MICRO_BATCH
        yield micro_batches - last + 1 if repeated else 1


def _peak_flops(operation: Operation, gpu: Gpu, precision: Precision) -> float:
    """The FLOP rate of the units an operation runs on, with PyTorch's default settings."""
    if operation.dtype == "float16":
        return gpu.fp16_flops
    if operation.dtype == "bfloat16":
        return gpu.bf16_flops or gpu.fp32_flops
    # Convolutions may use TF32 by default, matrix products only if asked.
    if precision is Precision.TF32 or "convolution" in operation.name:
        return gpu.tf32_flops or gpu.fp32_flops
    return gpu.fp32_flops
