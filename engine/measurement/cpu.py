"""A trial on the CPU: real tensors, every live byte counted, against a memory limit."""

from __future__ import annotations

import os
import platform
import time

from engine.batches import make_batch
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.measurement.steps import WARM_UP_STEPS, median_seconds, out_of_memory_in
from engine.recorder import MemoryLimitExceeded, MemoryRecorder
from engine.result import Source, Trial
from engine.training import build_model, prepare, step_of


def facts() -> DeviceFacts:
    """The processor, with the machine's memory."""
    name = f"CPU ({platform.processor() or platform.machine()})"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return DeviceFacts("cpu", name, total, 0, 0.0)


def run_trial(order: TrialOrder) -> Trial:
    """Run real steps and count the bytes of every tensor alive, to the byte.

    Counting slows a step down, so steps are timed after it is over.
    """
    training = prepare(order.workload, build_model(order.workload))
    step = step_of(order.forward_only)
    try:
        recorder = MemoryRecorder(training, order.batch_size, limit_bytes=order.memory_limit_bytes)
        batch = make_batch(order.workload, order.batch_size)
        for _ in range(WARM_UP_STEPS):
            recorder.record_step(lambda: step(training, batch))
    except MemoryLimitExceeded as error:
        return Trial(
            batch_size=order.batch_size,
            fits=False,
            source=Source.MEASURED,
            failure=f"{out_of_memory_in(training.phase)}: {error}",
        )

    def timed_step() -> float:
        begin = time.perf_counter()
        step(training, batch)
        return time.perf_counter() - begin

    seconds = median_seconds(timed_step)
    peak, breakdown = recorder.trace.peak_by_category()
    return Trial(
        batch_size=order.batch_size,
        fits=True,
        source=Source.MEASURED,
        peak_allocated_bytes=peak,
        step_seconds=seconds,
        samples_per_second=order.batch_size / seconds,
        breakdown=breakdown,
    )
