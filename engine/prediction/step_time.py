"""Predicts the time of a training step from the operations of its trace.

Each operation is a kernel of some kind, which reaches a share of what the GPU sustains
(:mod:`~engine.prediction.speed_model`): its time is ``k + max(moving, computing) + c ·
min(moving, computing)``. The host launches kernels ahead of the GPU, in every phase of the step as
fast as :mod:`~engine.prediction.launches` says, and waits for it at the end of each step. Ratios,
such as throughput at one batch size over another, are more reliable than times.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import accumulate, pairwise

from ..answer.economics import FILLED_NOISE, unfilled_noise, within
from ..core.choices import Precision
from ..gpus import Gpu
from ..tracing.trace import COPY, ON_HOST, RECOMPUTATION, WAITING_COPY, Operation
from .host import LINK_BYTES_PER_SECOND, MEMORY_BYTES_PER_SECOND
from .intervals import RelativeRange, step_time_range
from .kernels import Format, kernel_of, kind_of
from .launches import LAUNCH_RANGE, launch_of
from .speed_model import speed_model

MICRO_BATCHES_TRACED = 2
"""The most that a trace runs: from the second one on, each is like the one before."""

FILLED = 0.95
"""From this share on, :attr:`StepTime.filled`, a batch counts as filling the GPU."""

_ANY = 1e12
"""More tiles than any product has: they fill every wave of every GPU."""
COLLECTIVE = "c10d."
"""Begins the names of what GPUs send one another while their kernels run."""
WAITED_FOR = "_c10d_functional."
INPUTS = "inputs"

PASSES = ("forward", "backward", RECOMPUTATION)
"""The phases of a micro-batch; what is recomputed is part of its backward pass."""
PHASES = {"forward": 0, "backward": 1, RECOMPUTATION: 1, "optimizer": 2}
"""The part of a step that the operations of a phase are in."""
_UPDATE = 2


class Family(StrEnum):
    """Steps whose predictions err alike."""

    TRANSFORMERS = "transformers"
    CONVOLUTIONAL = "convolutional"
    OTHER = "other"


@dataclass(frozen=True)
class Scales:
    """Factors on the model's rates from the measured times of one GPU and host.

    Attributes:
        compute, bandwidth: Factors on the FLOP rate and the memory bandwidth of every kernel.
        kernels: Factor on the speed at which a kernel starts and drains.
        host: Factor on the speed at which the host launches operations.
        copy: Factor on the rate from the host's memory to the GPU.
    """

    compute: float = 1.0
    bandwidth: float = 1.0
    kernels: float = 1.0
    host: float = 1.0
    copy: float = 1.0


UNSCALED = Scales()


@dataclass(frozen=True)
class StepTime:
    """The predicted time of one training step.

    Attributes:
        seconds: Time from one step to the next.
        gpu_seconds: Time of the GPU's kernels.
        host_seconds: Time of the host to launch them.
        filled: The share of the time in which the GPU moves or computes as fast as it would with
            many more samples: the rest goes to launching, starting and half-empty waves of kernels.
        fastest, slowest: ``seconds`` with the fastest host that is assumed, and the slowest; the
            same where the host's launch time is known.
    """

    seconds: float
    gpu_seconds: float
    host_seconds: float
    filled: float
    fastest: float
    slowest: float

    @property
    def launch_limited(self) -> bool:
        """Whether the GPU waits for its host."""
        return self.host_seconds > self.gpu_seconds


@dataclass(frozen=True)
class KernelTime:
    """The time of one kernel on one GPU, in its parts.

    Attributes:
        moving, computing: Predicted time of each.
        overlap: The share that the shorter of them adds to the longer.
        busy: The longer of them if there were samples to fill the GPU.
    """

    moving: float
    computing: float
    overlap: float
    busy: float

    def seconds(self, scales: Scales = UNSCALED) -> float:
        """The time from when it starts until it has drained."""
        moving, computing = self.moving / scales.bandwidth, self.computing / scales.compute
        both = max(moving, computing) + self.overlap * min(moving, computing)
        return speed_model().kernel_seconds / scales.kernels + both


@dataclass(frozen=True)
class Part:
    """The work of one phase, in all of a step's micro-batches.

    Attributes:
        kernels: The number of kernels, by their times.
        launches: Work of the host to launch them, in mean launches.
    """

    kernels: Mapping[KernelTime, float]
    launches: float

    def of_share(self, share: float) -> Part:
        """The work of a share of the micro-batches."""
        kernels = {kernel: share * times for kernel, times in self.kernels.items()}
        return Part(kernels, share * self.launches)


@dataclass(frozen=True)
class StepWork:
    """The work of one training step on one GPU, in time as the model has it.

    Attributes:
        passes: Work of the forward and the backward pass.
        update: Work of the optimizer, with what else the host does once in a step.
        micro_batches: Number of micro-batches in a step.
        link_seconds: Time for which the link to other GPUs, and to offloaded tensors, is busy.
        copied_bytes: Bytes of the batch copied from the host to the GPU.
        on_host_seconds: Time for which the GPU waits for the host: for an optimizer that runs
            there, and for copies in the stream of its kernels.
        waiting_seconds: Time for which the link is busy while the step waits for it, as for the
            sums of split layers.
        launch_seconds: Time of the host for a launch, where that is known.
        launch_range: Its lowest and highest value, where it is not known exactly.
    """

    passes: tuple[Part, Part]
    update: Part
    micro_batches: int
    link_seconds: float
    copied_bytes: float
    on_host_seconds: float = 0.0
    waiting_seconds: float = 0.0
    launch_seconds: float | None = None
    launch_range: tuple[float, float] | None = None

    @property
    def launches(self) -> float:
        """Work of the step for one core of the host, in mean launches."""
        return math.fsum(part.launches for part in (*self.passes, self.update))

    def of_share(self, share: float) -> StepWork:
        """The same step with a share of its micro-batches: the optimizer still runs once."""
        forward, backward = (part.of_share(share) for part in self.passes)
        return replace(
            self,
            passes=(forward, backward),
            micro_batches=max(1, round(share * self.micro_batches)),
            copied_bytes=share * self.copied_bytes,
            waiting_seconds=share * self.waiting_seconds,
        )

    def seconds(self, scales: Scales = UNSCALED) -> float:
        """The step time: copying the batch, then the longest of kernels, host and link."""
        return self.timed(scales).seconds

    def timed(self, scales: Scales = UNSCALED) -> StepTime:
        """The step time in its parts.

        The host waits for a copy from pageable memory, which in turn waits for the GPU's work: so
        each micro-batch begins with both of them idle.
        """
        parts = (*self.passes, self.update)
        gpu = [_gpu_seconds(part.kernels, scales) for part in parts]
        copying = self.copied_bytes / (speed_model().copy_bytes_per_second * scales.copy)

        def running(launch_seconds: float) -> float:
            host = [part.launches * launch_seconds / scales.host for part in parts]
            forward, backward, update = zip(host, gpu, strict=True)
            backward = backward[0], backward[1] + self.waiting_seconds
            passes = [(on_host / count, on_gpu / count) for on_host, on_gpu in (forward, backward)]
            queued = (count - 1) * queue_seconds(passes) + queue_seconds([*passes, update])
            return max(queued, self.link_seconds) + self.on_host_seconds

        count, known = self.micro_batches, self.launch_seconds
        launching = known or speed_model().host_seconds
        fastest, slowest = self.launch_range or ((known, known) if known else LAUNCH_RANGE)
        seconds = running(launching)
        busy = math.fsum(
            times * kernel.busy for part in parts for kernel, times in part.kernels.items()
        )
        return StepTime(
            seconds=copying + seconds,
            gpu_seconds=math.fsum(gpu),
            host_seconds=self.launches * launching / scales.host,
            filled=min(busy / seconds, 1.0) if seconds > 0 else 1.0,
            fastest=copying + running(fastest),
            slowest=copying + running(slowest),
        )


def queue_seconds(phases: Iterable[tuple[float, float]]) -> float:
    """Time at which a GPU has finished the phases of a step that its host launches ahead.

    Within a phase, both work at an even pace, so the GPU ends no sooner than its host, and no
    sooner than its own work takes from when it could begin. A host that is ahead after one phase
    stays ahead in the next.

    Args:
        phases: Times for which each keeps the host and the GPU busy, in seconds.
    """
    host = gpu = 0.0
    for launching, computing in phases:
        gpu = max(max(gpu, host) + computing, host + launching)
        host += launching
    return gpu


def _gpu_seconds(kernels: Mapping[KernelTime, float], scales: Scales) -> float:
    return math.fsum(times * kernel.seconds(scales) for kernel, times in kernels.items())


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
    kernels: list[Counter[KernelTime]] = [Counter(), Counter(), Counter()]
    launches = [0.0, 0.0, 0.0]
    if any(PHASES.get(operation.phase) == _UPDATE for operation in operations):
        launches[_UPDATE] += model.step_launches
    copied_bytes = host_seconds = link_seconds = waiting_seconds = 0.0
    for operation, times in _with_runs(operations, micro_batches):
        part = PHASES.get(operation.phase, 0)
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
            kernels[part][taken] += times
        launches[part] += times * model.launches[launch_of(operation)]
    forward, backward, update = map(Part, kernels, launches)
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


def _with_runs(
    operations: Sequence[Operation], micro_batches: int
) -> Iterator[tuple[Operation, int]]:
    """Each operation with its runs; one that a trace holds in many places only once."""
    total: dict[int, int] = defaultdict(int)
    for operation, times in zip(operations, runs(operations, micro_batches), strict=True):
        total[id(operation)] += times
    each = {id(operation): operation for operation in operations}
    return ((each[one], times) for one, times in total.items())


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


def runs(operations: Sequence[Operation], micro_batches: int) -> Iterator[int]:
    """Runs of each operation of a trace in a step with that many micro-batches.

    A micro-batch begins where its inputs are copied to the device; where none are, with its forward
    pass. It may do so more than once, as where one model trains against another. The first one
    creates the gradients and later ones add to them, so only the last traced one is repeated.
    """
    traced = min(micro_batches, MICRO_BATCHES_TRACED)
    copies = any(operation.phase == INPUTS for operation in operations)
    begins = INPUTS if copies else PASSES[0]
    phases = ["", *(operation.phase for operation in operations)]
    begun = list(accumulate(phase == begins != before for before, phase in pairwise(phases)))
    earlier = begun[-1] * (traced - 1) // traced if begun else 0
    for operation, count in zip(operations, begun, strict=True):
        repeated = count > earlier and operation.phase in (INPUTS, *PASSES)
        yield micro_batches - traced + 1 if repeated else 1


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
"""From this ratio of the slowest to the fastest step on: more than GPUs of a kind differ by."""

GUESSED = RelativeRange(0.5, 3.0)
"""Assumed on GPUs of a vendor whose kernels nobody here measured: as if they were an A100's."""

_MIN_SHARE = 0.8
"""The share of FLOPs that makes a step one of a family; patches of images are convolved too."""
