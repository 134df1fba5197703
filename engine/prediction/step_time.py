"""Predicts the time of a training step: a roofline over the operations of its trace.

It rests on assumed efficiencies. Ratios, such as throughput at one batch size over another, are
more reliable than times.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..gpus import Gpu
from ..tracing.trace import Operation
from ..workload import Precision


@dataclass(frozen=True)
class Efficiencies:
    """What a GPU and its host reach in practice.

    Attributes:
        compute: Share of the peak FLOP rate that matrix products of training shapes reach.
        bandwidth: Share of the peak memory bandwidth that element-wise kernels reach.
        kernel_seconds: Time for a kernel to start and drain on the GPU.
        host_seconds: Time for Python and PyTorch to launch one operation of an eager step.
        copy_bytes_per_second: From the host's pageable memory to the GPU.
    """

    compute: float
    bandwidth: float
    kernel_seconds: float
    host_seconds: float
    copy_bytes_per_second: float


ASSUMED = Efficiencies(
    compute=0.6,
    bandwidth=0.75,
    kernel_seconds=5e-6,
    host_seconds=25e-6,
    copy_bytes_per_second=10e9,
)
"""All five are assumed; ``python -m benchmarks.gpu calibrate`` fits them to a real GPU.

The copy rate is between published ones for PCIe Gen3, 5 to 6 GB/s
(https://github.com/rapidsai/dask-cuda/pull/98), and Gen4, 12.9 GB/s at 64 MiB
(https://github.com/NVlabs/cuda-oxide/pull/976); both read 2026-11.
"""

MICRO_BATCHES_TRACED = 2
"""The most that a trace runs: from the second one on, each is like the one before."""
_COLLECTIVE = "c10d."
_INPUTS = "inputs"
_OF_A_MICRO_BATCH = (_INPUTS, "forward", "backward")


@dataclass(frozen=True)
class StepWork:
    """The work of one training step on one GPU, in time at the GPU's peak rates.

    Attributes:
        kernels: The number of kernels, by their seconds of moving bytes at peak bandwidth and of
            computing at peak FLOP rate.
        launches: The number of operations that the host launches.
        link_seconds: How long the link to other GPUs is busy.
        copied_bytes: Of the batch, from the host to the GPU.
    """

    kernels: Mapping[tuple[float, float], int]
    launches: int
    link_seconds: float
    copied_bytes: float

    def seconds(self, efficiencies: Efficiencies) -> float:
        """The step time: copying the batch, then the longest of kernels, host and link.

        The host waits for a copy from pageable memory, which in turn waits for the GPU's work.
        """
        on_gpu = sum(
            times
            * (
                efficiencies.kernel_seconds
                + max(moving / efficiencies.bandwidth, computing / efficiencies.compute)
            )
            for (moving, computing), times in self.kernels.items()
        )
        copying = self.copied_bytes / efficiencies.copy_bytes_per_second
        return copying + max(on_gpu, self.launches * efficiencies.host_seconds, self.link_seconds)


def predict_step_seconds(
    operations: Sequence[Operation],
    gpu: Gpu,
    precision: Precision,
    micro_batches: int = 1,
    link_bytes_per_second: float = math.inf,
) -> float:
    """The time of one training step; see :func:`step_work` for the arguments."""
    work = step_work(operations, gpu, precision, micro_batches, link_bytes_per_second)
    return work.seconds(ASSUMED)


def step_work(
    operations: Sequence[Operation],
    gpu: Gpu,
    precision: Precision,
    micro_batches: int = 1,
    link_bytes_per_second: float = math.inf,
) -> StepWork:
    """The work of one training step.

    Each operation takes the longer of computing and moving its bytes. Copying a batch to the GPU
    reads it on the host and writes it on the GPU, so half of its bytes cross over.

    Args:
        operations: Those of one step, as :func:`~engine.prediction.tracer.trace` records them:
            of two micro-batches where a step accumulates that many or more.
        gpu: With its peak rates.
        precision: Decides whether fp32 matrix products may use TF32.
        micro_batches: How many the step really has. The second traced one stands for all later
            ones; the optimizer runs once.
        link_bytes_per_second: How fast a GPU sends to others, where several share the work.
    """
    kernels: Counter[tuple[float, float]] = Counter()
    launches, link_seconds, copied_bytes = 0, 0.0, 0.0
    for operation, times in zip(operations, _runs(operations, micro_batches), strict=True):
        launches += times
        if operation.name.startswith(_COLLECTIVE):
            link_seconds += times * operation.bytes_moved / link_bytes_per_second
            continue
        if operation.phase == _INPUTS:
            copied_bytes += times * operation.bytes_moved / 2
            continue
        moving = operation.bytes_moved / gpu.memory_bytes_per_second
        computing = operation.flops / _peak_flops(operation, gpu, precision)
        kernels[moving, computing] += times
    return StepWork(kernels, launches, link_seconds, copied_bytes)


def _runs(operations: Sequence[Operation], micro_batches: int) -> Iterator[int]:
    """How often a step with that many micro-batches runs each operation of its trace.

    A micro-batch begins where its inputs are copied to the device. The first one creates the
    gradients and later ones add to them, so only the last traced one is repeated.
    """
    last = min(micro_batches, MICRO_BATCHES_TRACED)
    begun, before = 0, ""
    for operation in operations:
        begun += operation.phase == _INPUTS != before
        before = operation.phase
        repeated = begun == last and operation.phase in _OF_A_MICRO_BATCH
        yield micro_batches - last + 1 if repeated else 1


def _peak_flops(operation: Operation, gpu: Gpu, precision: Precision) -> float:
    """The FLOP rate of the units that run an operation, with PyTorch's default settings."""
    if operation.dtype == "float16":
        return gpu.fp16_flops
    if operation.dtype == "bfloat16":
        return gpu.bf16_flops or gpu.fp32_flops
    # Convolutions may use TF32 by default, matrix products only if that is set.
    if precision is Precision.TF32 or "convolution" in operation.name:
        return gpu.tf32_flops or gpu.fp32_flops
    return gpu.fp32_flops
