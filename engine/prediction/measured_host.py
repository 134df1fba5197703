"""The launch time of a machine's host, from steps that were measured there.

A step that waits for its host takes as long as the host's launches, whose number the trace knows.
So one such step tells what the host takes for a launch, and with it how long other batches take on
that machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from ..errors import InvalidInput
from ..gpus import Gpu
from ..request import AnalysisRequest
from ..workload import Workload
from .correction import Correction
from .intervals import Residual
from .probe import work_of_step
from .step_time import StepWork
from .tracer import TraceAt

HOST_SHARE = 0.8
"""A step tells of its host if the GPU alone would take less than this share of it: what is left
then is more than the model of the GPU errs by."""
SLOWEST = 150e-6
"""Seconds, two and a half times the slowest host that is assumed. A step that would need slower
launches waits for something else, such as its data."""
MAX_STEPS = 10
"""Of those that were measured last: each takes tens of milliseconds."""
_ACCURACY = 1e-8
"""Seconds."""


def on_measured_host(
    gpu: Gpu, request: AnalysisRequest, correction: Correction, trace_at: TraceAt
) -> tuple[Gpu, Correction]:
    """The GPU in the machine where steps of the workload were measured, and the correction with it.

    Args:
        gpu: Where the workload is to be predicted; both are given back where its launch time is
            known, or the steps do not tell it.
        request: Of the workload.
        correction: With the steps.
        trace_at: The traces of the workload on that GPU.
    """
    if gpu.launch_seconds is not None or request.workload.pipeline_parallel > 1:
        return gpu, correction
    told = list(_told(gpu, request, correction, trace_at))
    if not told:
        return gpu, correction
    seconds = median(launching for _, launching in told)
    steps = [step for step, _ in told]
    return (
        replace(gpu, launch_seconds=seconds),
        replace(correction, of_host=steps, launch_seconds=seconds),
    )


def _told(
    gpu: Gpu, request: AnalysisRequest, correction: Correction, trace_at: TraceAt
) -> Iterator[tuple[Residual, float]]:
    """The steps that tell the launch time, each with what it tells."""
    for step in correction.of_host[:MAX_STEPS]:
        try:
            trained = Workload.parse(step.workload)
        except InvalidInput:  # of another version of MemoryMark
            continue
        asked = request.workload_at(step.batch_size)
        if trained.gradient_accumulation == asked.gradient_accumulation:
            work = work_of_step(asked, gpu, trace_at(step.batch_size))
            launching = launch_seconds(work, step.measured)
            if launching is not None:
                yield step, launching


def launch_seconds(work: StepWork, measured: float) -> float | None:
    """The launch time with which a step is predicted to take as long as was measured, in seconds.

    Args:
        work: Of the step.
        measured: What it took, in seconds.

    Returns:
        ``None`` where the GPU decides, or no host is so slow.
    """

    def predicted(launching: float) -> float:
        return replace(work, launch_seconds=launching).seconds()

    if predicted(_ACCURACY) > HOST_SHARE * measured or predicted(SLOWEST) < measured:
        return None
    low, high = _ACCURACY, SLOWEST
    while high - low > _ACCURACY:
        middle = (low + high) / 2
        low, high = (middle, high) if predicted(middle) < measured else (low, middle)
    return (low + high) / 2
