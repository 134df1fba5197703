"""The work of a step for one GPU and its host, and the time that both take for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from .launch_queue import queue_seconds
from .launches import LAUNCH_RANGE
from .speed_model import speed_model


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
        ahead: ``seconds`` if the host waited for the GPU nowhere within the step.
    """

    seconds: float
    gpu_seconds: float
    host_seconds: float
    filled: float
    fastest: float
    slowest: float
    ahead: float

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
    """The work of a phase until the host waits for the GPU, in all of a step's micro-batches.

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


Phase = tuple[Part, ...]
"""The work of one phase: between two parts, the host waits until the GPU has done the first."""


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

    passes: tuple[Phase, Phase]
    update: Phase
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
        return math.fsum(part.launches for part in self._parts)

    @property
    def _parts(self) -> Iterator[Part]:
        return chain(*self.passes, self.update)

    def of_share(self, share: float) -> StepWork:
        """The same step with a share of its micro-batches: the optimizer still runs once."""
        forward, backward = (tuple(part.of_share(share) for part in phase) for phase in self.passes)
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
        phases = (*self.passes, self.update)
        gpu = [[_gpu_seconds(part.kernels, scales) for part in phase] for phase in phases]
        copying = self.copied_bytes / (speed_model().copy_bytes_per_second * scales.copy)

        def running(launch_seconds: float, *, ahead: bool = False) -> float:
            launch = launch_seconds / scales.host
            forward, backward, update = (
                [(part.launches * launch, on_gpu) for part, on_gpu in zip(phase, its, strict=True)]
                for phase, its in zip(phases, gpu, strict=True)
            )
            waiting = self.waiting_seconds / len(backward)
            backward = [(on_host, on_gpu + waiting) for on_host, on_gpu in backward]
            passes = [
                [(on_host / count, on_gpu / count) for on_host, on_gpu in phase]
                for phase in (forward, backward)
            ]
            if ahead:
                passes, update = [*map(_in_one_part, passes)], _in_one_part(update)
            queued = (count - 1) * queue_seconds(passes) + queue_seconds([*passes, update])
            return max(queued, self.link_seconds) + self.on_host_seconds

        count, known = self.micro_batches, self.launch_seconds
        launching = known or speed_model().host_seconds
        fastest, slowest = self.launch_range or ((known, known) if known else LAUNCH_RANGE)
        seconds = running(launching)
        busy = math.fsum(
            times * kernel.busy for part in self._parts for kernel, times in part.kernels.items()
        )
        return StepTime(
            seconds=copying + seconds,
            gpu_seconds=math.fsum(chain(*gpu)),
            host_seconds=self.launches * launching / scales.host,
            filled=min(busy / seconds, 1.0) if seconds > 0 else 1.0,
            fastest=copying + running(fastest),
            slowest=copying + running(slowest),
            ahead=copying + running(launching, ahead=True),
        )


def _in_one_part(phase: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A phase in which the host does not wait, from its parts."""
    return [(math.fsum(one[0] for one in phase), math.fsum(one[1] for one in phase))]


def _gpu_seconds(kernels: Mapping[KernelTime, float], scales: Scales) -> float:
    return math.fsum(times * kernel.seconds(scales) for kernel, times in kernels.items())
