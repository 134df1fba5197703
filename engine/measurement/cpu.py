"""A trial on the CPU: real tensors, with every live byte counted towards a memory limit."""

from __future__ import annotations

import os
import platform
import time

from ..parallel.group import recording
from ..result import Source, Trial
from ..script.factory import Factory
from ..tracing.recorder import MemoryLimitExceeded, MemoryRecorder
from .protocol import DeviceFacts, RecordedStep, TrialOrder
from .steps import (
    WARM_UP_STEPS,
    Steps,
    agreement,
    recorded_step,
    steps_of,
    time_steps,
    with_times,
)


def facts() -> DeviceFacts:
    """The processor with the machine's memory; each core may stand for one of several GPUs."""
    name = f"CPU ({platform.processor() or platform.machine()})"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return DeviceFacts("cpu", name, total, 0, 0.0, os.cpu_count() or 1)


def run_trial(order: TrialOrder) -> Trial:
    """Run real steps and count the bytes of every tensor alive, to the byte.

    Counting slows steps down, so they are timed afterwards.
    """
    steps = steps_of(order)
    steps.build("cpu")
    try:
        recorder = _record(steps, order, order.memory_limit_bytes)
    except MemoryLimitExceeded as error:
        return Trial(
            batch_size=order.batch_size,
            fits=False,
            source=Source.MEASURED,
            failure=f"{steps.out_of_memory(error)}: {error}",
        )

    def timed_step() -> float:
        begin = time.perf_counter()
        steps.step()
        return time.perf_counter() - begin

    times = time_steps(timed_step, agreement(order, "cpu"))
    peak, breakdown = recorder.trace.peak_by_category()
    trial = Trial(
        batch_size=order.batch_size,
        fits=True,
        source=Source.MEASURED,
        peak_allocated_bytes=peak,
        breakdown=breakdown,
    )
    return with_times(trial, times, order.samples_per_step)


def record(order: TrialOrder) -> RecordedStep:
    """Run real steps and report where memory went over the last of them."""
    steps = steps_of(order)
    steps.build("cpu")
    return recorded_step(_record(steps, order, None).trace)


def _record(steps: Steps, order: TrialOrder, limit_bytes: int | None) -> MemoryRecorder:
    workload = None if isinstance(order.workload, Factory) else order.workload
    with recording(steps.recorded, order.batch_size, workload, limit_bytes) as recorder:
        for move in (steps.begin, *[steps.step] * WARM_UP_STEPS):
            recorder.record_step(move)
    return recorder
