"""A trial on the CPU: real tensors, with every live byte counted towards a memory limit."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ..interface.trial import Source, Trial
from ..interface.workload import Workload
from ..parallel.group import recording
from ..script.process.running import ProgramSteps
from ..script.process.unlike_steps import STEPS
from ..tracing.recorded import MemoryLimitExceeded
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import Trace
from .protocol import DeviceFacts, RecordedStep, TrialOrder
from .steps import (
    WARM_UP_STEPS,
    Steps,
    agreement,
    enough,
    recorded_step,
    steps_of,
    time_steps,
    times_of,
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

    Args:
        order: The trial to run.
    """
    steps = steps_of(order)
    steps.build("cpu")
    try:
        recorder = _record(steps, order, order.memory_limit_bytes)
    except MemoryLimitExceeded as error:
        return _too_much(order, error, steps.out_of_memory(error))

    def timed_step() -> float:
        begin = time.perf_counter()
        steps.step()
        return time.perf_counter() - begin

    times = time_steps(timed_step, agreement(order, "cpu"))
    return with_times(_fits(order, recorder), times, order.samples_per_step)


def _fits(order: TrialOrder, recorder: MemoryRecorder) -> Trial:
    peak, breakdown = recorder.trace.peak_by_category()
    return Trial(
        batch_size=order.batch_size,
        fits=True,
        source=Source.MEASURED,
        peak_allocated_bytes=peak,
        breakdown=breakdown,
    )


def _too_much(order: TrialOrder, error: MemoryLimitExceeded, where: str) -> Trial:
    return Trial(
        batch_size=order.batch_size,
        fits=False,
        source=Source.MEASURED,
        failure=f"{where}: {error}",
    )


class ProgramWatch:
    """Counts the bytes of every tensor of a program's first steps, and times those after them.

    Args:
        order: For the trial of a program.
    """

    recorded = True

    def __init__(self, order: TrialOrder) -> None:
        self._order = order
        self._recording = ExitStack()
        self._seconds: list[float] = []
        self._begin = 0.0

    @contextmanager
    def around(self, steps: ProgramSteps) -> Iterator[None]:
        order = self._order
        self._recorder = MemoryRecorder(steps, order.batch_size, None, order.memory_limit_bytes)
        with self._recording:
            self._recording.enter_context(self._recorder.recording())
            yield

    def step_ended(self, number: int) -> bool:
        now = time.perf_counter()
        if number > STEPS:
            self._seconds.append(now - self._begin)
        elif number == STEPS:
            self._recording.close()
        else:
            self._recorder.end_step()
            self._recorder.begin_step()
        self._begin = time.perf_counter()
        return enough(self._seconds)

    def trial(self) -> Trial | None:
        if not self._seconds:
            return None
        fits = _fits(self._order, self._recorder)
        return with_times(fits, times_of(self._seconds), self._order.samples_per_step)

    def out_of_memory(self, error: BaseException, where: str) -> Trial | None:
        if not isinstance(error, MemoryLimitExceeded):
            return None
        return _too_much(self._order, error, f"out of memory{where}")


def record(order: TrialOrder) -> RecordedStep:
    """Run real steps and report where memory went over the last of them."""
    steps = steps_of(order)
    steps.build("cpu")
    return recorded_step(_record(steps, order, None).finish())


def program_recorder(
    order: TrialOrder, steps: ProgramSteps
) -> tuple[MemoryRecorder, Callable[[], Trace]]:
    """A recorder of a program's steps, and what gives the trace of all that it saw."""
    recorder = MemoryRecorder(steps, order.batch_size)
    return recorder, recorder.finish


def _record(steps: Steps, order: TrialOrder, limit_bytes: int | None) -> MemoryRecorder:
    workload = order.workload if isinstance(order.workload, Workload) else None
    with recording(steps.recorded, order.batch_size, workload, limit_bytes) as recorder:
        for move in (steps.begin, *[steps.step] * WARM_UP_STEPS):
            recorder.record_step(move)
    return recorder
