"""Predicts the time of a training step from the operations of its trace.

Each operation is a kernel of some kind, which reaches a share of what the GPU sustains
(:mod:`~engine.prediction.timing.speed_model`): its time is ``k + max(moving, computing) + c ·
min(moving, computing)``. The host launches kernels ahead of the GPU, in every phase of the step as
fast as :mod:`~.launches` says, and waits for it where the step reads a value, and at the end of
each step (:mod:`~.launch_queue`). Ratios, such as throughput at one
batch size over another, are more reliable than times.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache

from ...answer.economics import FILLED_NOISE, unfilled_noise, within
from ...core.choices import Precision
from ...gpus import Gpu
from ...tracing.trace import COPY, ON_HOST, WAITING_COPY, Operation
from .host import LINK_BYTES_PER_SECOND, MEMORY_BYTES_PER_SECOND
from .intervals import RelativeRange, step_time_range
from .kernels import Format, kernel_of, kind_of
from .launch_queue import INPUTS, PHASES, UPDATE, places, runs
from .launches import launch_of
from .speed_model import speed_model
from .work import KernelTime, Part, StepTime, StepWork

FILLED = 0.95
"""Share, :attr:`StepTime.filled`, from which on a batch counts as filling the GPU."""

_ANY = 1e12
"""More tiles than any product has: they fill every wave of every GPU."""
COLLECTIVE = "c10d."
"""Begins the names of what GPUs send one another while their kernels run."""
WAITED_FOR = "_c10d_functional."


class Family(StrEnum):
    """Steps whose predictions err alike."""

    TRANSFORMERS = "transformers"
    CONVOLUTIONAL = "convolutional"
    OTHER = "other"


def predict_step_seconds(
    operations: Sequence[Operation],
    gpu: Gpu,
    precision: Precision,
    micro_batches: int = 1,
    link_bytes_per_second: float = math.inf,
) -> float:
    """The time of one training step; see :func:`step_work` for the arguments."""
    return step_work(operations, gpu, precision, micro_batches, link_bytes_per_second).seconds()


def step_work(
    operations: Sequence[Operation],
    gpu: Gpu,
    precision: Precision,
    micro_batches: int = 1,
    link_bytes_per_second: float = math.inf,
) -> StepWork:
    """The work of one training step.

    Copying a batch to the GPU reads it on the host and writes it on the GPU, so half of its bytes
    cross over.

    Args:
        operations: Operations of one step, as :func:`~engine.traces.tracer.trace` records them:
            of two micro-batches where a step accumulates that many or more.
        gpu: The GPU, with its peak rates, and its host's launch time where that was measured.
        precision: Decides whether fp32 matrix products may use TF32.
        micro_batches: Number that the step really has. The second traced one stands for all later
            ones; the optimizer runs once.
        link_bytes_per_second: Rate at which a GPU sends to others, where several share the work.
    """
    time_of = kernel_times(gpu, precision)
    model = speed_model()
    done = [[_Done()] for _ in set(PHASES.values())]
    if any(PHASES.get(operation.phase) == UPDATE for operation in operations):
        done[UPDATE][0].launches += model.step_launches
    copied_bytes = host_seconds = link_seconds = waiting_seconds = 0.0
    for operation, place, times in _with_runs(operations, micro_batches):
        parts = done[PHASES.get(operation.phase, 0)]
        parts += [_Done() for _ in range(place + 1 - len(parts))]
        if operation.name.startswith(COLLECTIVE):
            link_seconds += times * operation.bytes_moved / link_bytes_per_second
        elif operation.name.startswith(WAITED_FOR):
            waiting_seconds += times * operation.bytes_moved / link_bytes_per_second
        elif operation.name == COPY:
            link_seconds += times * operation.bytes_moved / LINK_BYTES_PER_SECOND
        elif operation.name == WAITING_COPY:
            host_seconds += times * operation.bytes_moved / LINK_BYTES_PER_SECOND
        elif operation.name.startswith(ON_HOST):
            host_seconds += times * operation.bytes_moved / MEMORY_BYTES_PER_SECOND
            continue
        elif operation.phase == INPUTS:
            copied_bytes += times * operation.bytes_moved / 2
        else:
            taken = time_of(operation)
            if taken is None:
                continue
            parts[place].kernels[taken] += times
        parts[place].launches += times * model.launches[launch_of(operation)]
    forward, backward, update = (
        tuple(Part(one.kernels, one.launches) for one in parts) for parts in done
    )
    return StepWork(
        passes=(forward, backward),
        update=update,
        micro_batches=micro_batches,
        link_seconds=link_seconds,
        copied_bytes=copied_bytes,
        on_host_seconds=host_seconds,
        waiting_seconds=waiting_seconds,
        launch_seconds=gpu.launch_seconds,
        launch_range=gpu.launch_range,
    )


@dataclass
class _Done:
    """The work of a part so far; see :class:`Part`."""

    kernels: Counter[KernelTime] = field(default_factory=Counter)
    launches: float = 0.0


def _with_runs(
    operations: Sequence[Operation], micro_batches: int
) -> Iterator[tuple[Operation, int, int]]:
    """Each operation with the part it is in and its runs there; one held in many places once."""
    total: dict[tuple[int, int], int] = defaultdict(int)
    counts = runs(operations, micro_batches), places(operations, micro_batches)
    for operation, times, place in zip(operations, *counts, strict=True):
        total[id(operation), place] += times
    each = {id(operation): operation for operation in operations}
    return ((each[one], place, times) for (one, place), times in total.items())


def kernel_times(gpu: Gpu, precision: Precision) -> Callable[[Operation], KernelTime | None]:
    """Returns the time of an operation's kernel on a GPU; ``None`` where none runs."""
    model = speed_model()
    rates = model.rates(gpu)
    units = {
        "tf32": gpu.tf32_flops is not None,
        "tf32_products": precision is Precision.TF32,
    }

    def time_of(operation: Operation) -> KernelTime | None:
        return time_if(operation, operation.unrolled)

    @cache
    def time_if(operation: Operation, unrolled: bool) -> KernelTime | None:
        kernel = kernel_of(operation, **units)
        if kernel is None:
            return None
        if operation.dtype == "bfloat16" and gpu.bf16_flops is None:  # no units for it
            kernel = replace(kernel, format=Format.FP32)
        moving = model.moving_seconds(kernel, rates)
        peak = rates.flops_per_second[kernel.format]
        computing = model.computing_seconds(kernel, peak, rates)
        if kernel.unaligned:  # then fp32 may be as fast
            single = replace(kernel, format=Format.FP32, unaligned=0.0)
            its_peak = rates.flops_per_second[Format.FP32]
            in_fp32 = model.computing_seconds(single, its_peak, rates)
            computing = min(computing, in_fp32)
        full = model.computing_seconds(replace(kernel, tiles=_ANY), peak, rates)
        overlap = model.overlap[kernel.kind]
        busy = max(moving, full) + overlap * min(moving, full)
        return KernelTime(moving, computing, overlap, busy)

    return time_of


def family_of(operations: Sequence[Operation]) -> Family:
    """The family of a step, by what most of its FLOPs are spent on."""
    flops = dict.fromkeys(Family, 0)
    for operation in operations:
        if operation.flops:
            convolves = "CONVOLUTION" in kind_of(operation).name
            flops[Family.CONVOLUTIONAL if convolves else Family.TRANSFORMERS] += operation.flops
    total = sum(flops.values())
    return next((one for one in flops if flops[one] > _MIN_SHARE * total), Family.OTHER)


def time_range(operations: Sequence[Operation], gpu: Gpu, step: StepTime) -> RelativeRange:
    """The range of a step's predicted time, by its family and what is known of GPU and host."""
    has_rows = gpu.name in speed_model().gpus
    span = step_time_range(family_of(operations), has_rows, step.launch_limited)
    if not gpu.rates_known:
        span = GUESSED
    return RelativeRange(
        span.low * step.fastest / step.seconds, span.high * step.slowest / step.seconds
    )


def ratio_span(
    one: StepTime, other: StepTime, gained: float, noise: float | None = None
) -> tuple[float, float]:
    """Range of the speed of the other over that of the one, as shares of the predicted ratio.

    Both run on the same host, however fast that is.

    Args:
        one: The step of today.
        other: The step of another batch, or of the workload with moves.
        gained: The predicted speed of the other over that of the one, in samples.
        noise: Relative error of the ratio on a known host; by default, that of two batches of one
            workload.
    """
    if noise is None:
        fills = min(one.filled, other.filled) >= FILLED
        noise = FILLED_NOISE if fills else unfilled_noise(gained)
    ratio = one.seconds / other.seconds
    hosts = [one.fastest / other.fastest / ratio, one.slowest / other.slowest / ratio, 1.0]
    low, high = within(noise)
    return min(hosts) * low, max(hosts) * high


def host_decides(step: StepTime) -> bool:
    """Whether the time of a step depends on its host, of which nothing is known."""
    return step.slowest > HOST_DECIDES * step.fastest


HOST_DECIDES = 1.25
"""Ratio of the slowest to the fastest step from which on the host decides: more than GPUs of a kind
differ by."""

GUESSED = RelativeRange(0.5, 3.0)
"""Assumed on GPUs of a vendor whose kernels nobody here measured: as if they were an A100's."""

_MIN_SHARE = 0.8
"""The share of FLOPs that makes a step one of a family; patches of images are convolved too."""
