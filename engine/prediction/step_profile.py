"""The parts of a training step's memory and time, in groups that two releases have in common."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..core.choices import Precision
from ..gpus import Gpu
from ..interface.result import OperationTime, StepProfile, TensorGroup
from ..tracing.trace import COPY, ON_HOST, WAITING_COPY, Operation, Trace
from .memory.timeline import alive_at_peak, peak_phase
from .timing.launch_queue import INPUTS, runs
from .timing.step_time import COLLECTIVE, WAITED_FOR, kernel_times

LAYER = "*"
"""Stands for the number of a layer."""


def step_profile(
    trace: Trace, gpu: Gpu, precision: Precision, micro_batches: int = 1
) -> StepProfile:
    """The profile of the last step of a trace.

    Args:
        trace: A trace of at least one step: of two micro-batches where it accumulates that many.
        gpu: The GPU that its kernels run on.
        precision: Decides whether fp32 matrix products may use TF32.
        micro_batches: Number that the step really has.
    """
    operations = _operations(trace, gpu, precision, micro_batches)
    return StepProfile(trace.batch_size, peak_phase(trace), _tensors(trace), operations)


def layers_alike(module: str) -> str:
    """The name of a module, the same for all layers of a list."""
    return ".".join(LAYER if part.isdigit() else part for part in module.split("."))


def _tensors(trace: Trace) -> list[TensorGroup]:
    counts: Counter[tuple[str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str]] = Counter()
    for tensor in alive_at_peak(trace):
        module = layers_alike(trace.modules[tensor])
        group = (module, trace.makers[tensor], trace.categories[tensor].value)
        counts[group] += 1
        sizes[group] += trace.sizes[tensor]
    return [TensorGroup(*group, counts[group], size) for group, size in sizes.most_common()]


def _operations(
    trace: Trace, gpu: Gpu, precision: Precision, micro_batches: int
) -> list[OperationTime]:
    time_of = kernel_times(gpu, precision)
    counts: Counter[str] = Counter()
    seconds: dict[str, float] = defaultdict(float)
    times = runs(trace.operations, micro_batches)
    for operation, count in zip(trace.operations, times, strict=True):
        taken = None if _is_elsewhere(operation) else time_of(operation)
        if taken is not None:
            counts[operation.name] += count
            seconds[operation.name] += count * taken.seconds()
    longest = sorted(seconds, key=seconds.__getitem__, reverse=True)
    return [OperationTime(name, counts[name], seconds[name]) for name in longest]


def _is_elsewhere(operation: Operation) -> bool:
    """Whether it is a copy, or runs on the host or between GPUs."""
    elsewhere = (ON_HOST, COLLECTIVE, WAITED_FOR, COPY, WAITING_COPY)
    return operation.phase == INPUTS or operation.name.startswith(elsewhere)
