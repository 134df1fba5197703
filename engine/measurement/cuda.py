"""A trial on a CUDA GPU: the caching allocator's own counters, time by CUDA events."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from ..interface.trial import Source, Trial
from ..script.process.running import ProgramSteps
from ..tracing.recorded import Recorded
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import Trace
from .history import SightingRecorder, trace_of
from .protocol import DeviceFacts, RecordedStep, TrialOrder
from .steps import (
    WARM_UP_STEPS,
    agreement,
    enough,
    recorded_step,
    steps_of,
    time_steps,
    times_of,
    with_times,
)

_SIGNS = ("out of memory", "STATUS_ALLOC_FAILED", "DEVICE_ALLOCATION_FAILED")
_NO_ALGORITHM = "unable to find an engine to execute this computation"


def facts() -> DeviceFacts:
    """The GPU, with the memory used before the first tensor of a trial.

    That is the CUDA context, cuBLAS with its kernels, and other processes.
    """
    properties = torch.cuda.get_device_properties(0)
    weight = torch.ones(64, 64, device="cuda", requires_grad=True)
    (weight @ weight).sum().backward()
    torch.cuda.synchronize()
    return DeviceFacts(
        kind="cuda",
        name=properties.name,
        total_bytes=properties.total_memory,
        context_bytes=_device_used_bytes() - torch.cuda.memory_reserved(),
        compute_capability=properties.major + properties.minor / 10,
        count=torch.cuda.device_count(),
    )


def run_trial(order: TrialOrder) -> Trial:
    """Run real steps; running out of GPU memory anywhere in them is a result.

    Args:
        order: The trial to run.
    """
    if order.memory_limit_bytes is not None:
        emulate_a_smaller_gpu(order.memory_limit_bytes)
    steps = steps_of(order)
    try:
        steps.build("cuda")
        steps.begin()
        for _ in range(WARM_UP_STEPS):
            steps.step()
        times = time_steps(lambda: _timed(steps.step), agreement(order, "cuda"))
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
        return _gave_up(order, error, steps.out_of_memory(error))
    return with_times(_trial(order), times, order.samples_per_step)


class ProgramWatch:
    """Reads the caching allocator's counters once the steps of a program have been timed.

    Args:
        order: For the trial of a program.
    """

    recorded = False

    def __init__(self, order: TrialOrder) -> None:
        self._order = order
        self._seconds: list[float] = []
        self._begin: torch.cuda.Event | None = None
        self._is_done = False

    @contextmanager
    def around(self, steps: ProgramSteps) -> Iterator[None]:
        if self._order.memory_limit_bytes is not None:
            emulate_a_smaller_gpu(self._order.memory_limit_bytes)
        yield

    def step_ended(self, number: int) -> bool:
        if number < WARM_UP_STEPS:
            return False
        now = torch.cuda.Event(enable_timing=True)
        now.record()
        now.synchronize()
        if self._begin is not None:
            self._seconds.append(float(self._begin.elapsed_time(now)) / 1000)
        self._begin = now
        return enough(self._seconds)

    def trial(self) -> Trial | None:
        if not self._seconds:
            return None
        times = times_of(self._seconds)
        return with_times(_trial(self._order), times, self._order.samples_per_step)

    def out_of_memory(self, error: BaseException, where: str) -> Trial | None:
        if not (isinstance(error, RuntimeError) and _out_of_memory(error)):
            return None
        return _gave_up(self._order, error, f"out of memory{where}")


def _gave_up(order: TrialOrder, error: RuntimeError, where: str) -> Trial:
    reason = str(error).removeprefix("CUDA out of memory. ").partition("\n")[0].split(". ")[0]
    return replace(_trial(order), fits=False, failure=f"{where}: {reason}")


def _out_of_memory(error: RuntimeError) -> bool:
    """Whether memory ran out, in the allocator or in a library beside it.

    On a GPU that is nearly full, the driver may have no room for another kernel, or cuBLAS and
    cuDNN for what they allocate themselves. A convolution tries one algorithm after another, and
    only says that none was left if the allocator had no workspace for any.
    """
    message = str(error)
    if _NO_ALGORITHM in message:
        return bool(torch.cuda.memory_stats().get("num_ooms"))
    return any(sign in message for sign in _SIGNS)


def record(order: TrialOrder) -> RecordedStep:
    """Run real steps and report where memory went over the last one, from the allocator's history.

    Nothing is timed here, since recording slows steps down.
    """
    history = _History()
    steps = steps_of(order)
    steps.build("cuda")
    recorder = history.recorder(steps.recorded, order)
    for move in (steps.begin, *[steps.step] * WARM_UP_STEPS):
        recorder.record_step(move)
    return recorded_step(history.trace(recorder))


def program_recorder(
    order: TrialOrder, steps: ProgramSteps
) -> tuple[MemoryRecorder, Callable[[], Trace]]:
    """A recorder of a program's steps, and what gives the trace of all that it saw."""
    history = _History()
    recorder = history.recorder(steps, order)
    return recorder, lambda: history.trace(recorder)


def snapshot(order: TrialOrder) -> Trial:
    """Run real steps, and write the allocator's snapshot of them, with Python's stacks.

    Steps that run out of memory have one too, up to there. Nothing is timed, since recording slows
    steps down.
    """
    _begin_snapshot(order)
    steps = steps_of(order)
    try:
        steps.build("cuda")
        for move in (steps.begin, *[steps.step] * WARM_UP_STEPS):
            move()
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
        _write_snapshot(order)
        return _gave_up(order, error, steps.out_of_memory(error))
    _write_snapshot(order)
    return _trial(order)


class SnapshotWatch(ProgramWatch):
    """Writes the allocator's snapshot once a program has run enough steps, or out of memory."""

    @contextmanager
    def around(self, steps: ProgramSteps) -> Iterator[None]:
        _begin_snapshot(self._order)
        yield

    def step_ended(self, number: int) -> bool:
        self._is_done = number >= WARM_UP_STEPS
        return self._is_done

    def trial(self) -> Trial | None:
        if not self._is_done:
            return None
        _write_snapshot(self._order)
        return _trial(self._order)

    def out_of_memory(self, error: BaseException, where: str) -> Trial | None:
        trial = super().out_of_memory(error, where)
        if trial is not None:
            _write_snapshot(self._order)
        return trial


def _begin_snapshot(order: TrialOrder) -> None:
    if order.memory_limit_bytes is not None:
        emulate_a_smaller_gpu(order.memory_limit_bytes)
    torch.cuda.init()
    torch.cuda.memory._record_memory_history("all", stacks="python")


def _write_snapshot(order: TrialOrder) -> None:
    """Write it as ``torch.cuda.memory._dump_snapshot`` does; of a group, the first GPU's."""
    if order.rank == 0:
        Path(order.file).write_bytes(pickle.dumps(torch.cuda.memory._snapshot()))


class _History:
    """The caching allocator's history, from now on."""

    def __init__(self) -> None:
        torch.cuda.init()
        torch.cuda.memory._record_memory_history("all", context=None)
        self._begin = _events_so_far()

    def recorder(self, training: Recorded, order: TrialOrder) -> SightingRecorder:
        return SightingRecorder(training, order.batch_size, lambda: _events_so_far() - self._begin)

    def trace(self, recorder: SightingRecorder) -> Trace:
        history = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        return trace_of(history, recorder.seen)


def _events_so_far() -> int:
    """Number of allocations and frees that the caching allocator has made so far."""
    count = torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]
    return int(count["allocated"] + count["freed"])


def emulate_a_smaller_gpu(memory_limit_bytes: int) -> None:
    """Limit the allocator to what a GPU with that memory would leave it beside the CUDA context."""
    torch.cuda.init()
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    share = (memory_limit_bytes - _device_used_bytes()) / total
    torch.cuda.set_per_process_memory_fraction(min(max(share, 0.0), 1.0))


def _timed(step: Callable[[], None]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def _trial(order: TrialOrder) -> Trial:
    return Trial(
        batch_size=order.batch_size,
        fits=True,
        source=Source.MEASURED,
        peak_allocated_bytes=torch.cuda.max_memory_allocated(),
        peak_reserved_bytes=torch.cuda.max_memory_reserved(),
        device_used_bytes=_device_used_bytes(),
        alloc_retries=torch.cuda.memory_stats().get("num_alloc_retries"),
    )


def _device_used_bytes() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free
