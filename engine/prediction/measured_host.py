"""The launch time of a machine's host, from steps that were measured there.

A step that waits for its host takes as long as the host's launches, whose number the trace knows.
So one such step shows the host's time for a launch, and with it how long other batches take on
that machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from ..gpus import Gpu
from ..interface.request import AnalysisRequest
from ..traces.source import TraceSource
from .probe import work_of_step
from .timing.correction import Correction, micro_batches
from .timing.intervals import Residual
from .timing.recorded_steps import at_batch
from .timing.work import StepWork

HOST_SHARE = 0.8
"""A step gives the launch time if the GPU alone would take less than this share of it: what is left
then is more than the model of the GPU errs by."""
SLOWEST = 150e-6
"""Seconds, two and a half times the slowest host that is assumed. A step that would need slower
launches waits for something else, such as its data."""
MAX_STEPS = 10
"""Steps used, those measured last: each takes tens of milliseconds."""
_ACCURACY = 1e-8
"""Seconds."""

_PIPELINE = "in a pipeline, stages wait for each other"
_KNOWN = "it was set"
_GPU_DECIDES = "the GPU decides how long its step takes"
_WAITS = "no host is so slow, so its step waits for something else, such as its data"


def on_measured_host(
    gpu: Gpu, request: AnalysisRequest, correction: Correction, traces: TraceSource
) -> tuple[Gpu, Correction]:
    """The GPU in the machine where steps of the workload were measured, and the correction with it.

    Args:
        gpu: The GPU to predict for; it is returned unchanged where its launch time is known,
            or the steps do not give it.
        request: The request for the workload.
        correction: The correction, with the steps.
        traces: The traces of the workload on that GPU.
    """
    if request.workload.pipeline_parallel > 1:
        return gpu, replace(correction, untold=[*correction.untold, _PIPELINE])

    def micro_batches_at(batch_size: int) -> int:
        return request.workload_at(batch_size).gradient_accumulation

    def work_at(batch_size: int) -> StepWork:
        return work_of_step(request.workload_at(batch_size), gpu, traces.at(batch_size))

    return on_told_host(gpu, correction, micro_batches_at, work_at)


def on_told_host(
    gpu: Gpu,
    correction: Correction,
    micro_batches_at: Callable[[int], int],
    work_at: Callable[[int], StepWork],
) -> tuple[Gpu, Correction]:
    """The same for whatever is trained.

    Args:
        gpu: The GPU to predict for.
        correction: The correction, with the steps.
        micro_batches_at: Number of micro-batches in a step of a batch size.
        work_at: The work of a step of a batch size.
    """
    if gpu.launch_seconds is not None and gpu.launch_range is None:
        return gpu, replace(correction, untold=[_KNOWN])
    told, untold = [], list(correction.untold)
    for step in correction.of_host[:MAX_STEPS]:
        found = _told(step, micro_batches_at, work_at)
        if isinstance(found, float):
            told.append((step, found))
        else:
            untold.append(at_batch(found, step.batch_size))
    if not told:
        return gpu, replace(correction, untold=untold)
    seconds = median(launching for _, launching in told)
    steps = [step for step, _ in told]
    return (
        replace(gpu, launch_seconds=seconds, launch_range=None),
        replace(correction, of_host=steps, launch_seconds=seconds, untold=untold),
    )


def _told(
    step: Residual,
    micro_batches_at: Callable[[int], int],
    work_at: Callable[[int], StepWork],
) -> float | str:
    """The launch time that a step gives, or why it gives none."""
    trained, asked = micro_batches(step), micro_batches_at(step.batch_size)
    if trained != asked:
        return f"it accumulated {trained:,} micro-batches, not {asked:,}"
    work = work_at(step.batch_size)
    launching = launch_seconds(work, step.measured)
    if launching is not None:
        return launching
    return _GPU_DECIDES if _is_decided_by_gpu(work, step.measured) else _WAITS


def launch_seconds(work: StepWork, measured: float) -> float | None:
    """The launch time with which a step is predicted to take as long as was measured, in seconds.

    Args:
        work: Work of the step.
        measured: Measured time of the step, in seconds.

    Returns:
        ``None`` where the GPU decides, or no host is so slow.
    """
    if _is_decided_by_gpu(work, measured) or _predicted(work, SLOWEST) < measured:
        return None
    low, high = _ACCURACY, SLOWEST
    while high - low > _ACCURACY:
        middle = (low + high) / 2
        low, high = (middle, high) if _predicted(work, middle) < measured else (low, middle)
    return (low + high) / 2


def _is_decided_by_gpu(work: StepWork, measured: float) -> bool:
    """Whether a host that takes no time would leave too much of the step as it is."""
    return _predicted(work, _ACCURACY) > HOST_SHARE * measured


def _predicted(work: StepWork, launching: float) -> float:
    return replace(work, launch_seconds=launching).seconds()
