"""Predicts the time of a training step: a roofline over the operations of its trace.

A prediction made of assumed efficiencies, not a measurement. Its ratios (throughput at one batch
size over another) hold better than its absolute times.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.gpus import Gpu
from engine.trace import Operation
from engine.workload import Precision

COMPUTE_EFFICIENCY = 0.6
"""Assumed share of the peak FLOP rate that matrix products of training shapes reach."""
BANDWIDTH_EFFICIENCY = 0.75
"""Assumed share of the peak memory bandwidth that element-wise kernels reach."""
KERNEL_SECONDS = 5e-6
"""Assumed time for a kernel to start and drain on the GPU."""
HOST_SECONDS = 25e-6
"""Assumed time for Python and PyTorch to launch one operation of an eager step."""


def predict_step_seconds(operations: Iterable[Operation], gpu: Gpu, precision: Precision) -> float:
    """Time of one training step, in seconds.

    Each operation takes the longer of computing and moving its bytes; the step takes the longer of
    all its kernels and of the host that launches them.

    Args:
        operations: The work of one step.
        gpu: With its peak rates.
        precision: Says whether fp32 matrix products may use TF32.
    """
    on_gpu = on_host = 0.0
    for operation in operations:
        on_host += HOST_SECONDS
        moving = operation.bytes_moved / (gpu.memory_bytes_per_second * BANDWIDTH_EFFICIENCY)
        rate = _peak_flops(operation, gpu, precision) * COMPUTE_EFFICIENCY
        on_gpu += KERNEL_SECONDS + max(moving, operation.flops / rate)
    return max(on_gpu, on_host)


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
