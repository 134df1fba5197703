"""A predicted step as a trace in Chrome's format, for chrome://tracing and Perfetto.

The format is that of "Trace Event Format" (Google, 2016), which ``torch.profiler`` writes too.
Kernels have the times of :mod:`engine.prediction.timing.step_time`, which knows a phase's launches
as a whole: within a phase, host and GPU work at an even pace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ..core.choices import Precision
from ..gpus import Gpu
from ..prediction.timing.launch_queue import INPUTS, PHASES, UPDATE, places
from ..prediction.timing.launches import launch_of
from ..prediction.timing.speed_model import speed_model
from ..prediction.timing.step_time import kernel_times, step_work
from ..tracing.trace import Operation, Trace

_MICROSECONDS = 1e6
_ROWS = {"phases": 0, "kernels": 1}
_PHASES = ("forward", "backward", "optimizer")

Event = dict[str, Any]


def chrome_trace(trace: Trace, gpu: Gpu, precision: Precision, micro_batches: int = 1) -> Event:
    """The step on a GPU, kernel by kernel; what links to other GPUs carry is left out.

    Args:
        trace: Its last step is shown: of two micro-batches where it accumulates that many or more.
        gpu: The GPU, and the host's launch time where that is known.
        precision: Decides whether fp32 matrix products may use TF32.
        micro_batches: Number that the step really has.

    Returns:
        What ``json.dump`` writes into a file; times in microseconds, predicted.
    """
    timeline = _Timeline(gpu, precision)
    step = step_work(trace.operations, gpu, precision, micro_batches).timed()
    each = zip(trace.operations, places(trace.operations, micro_batches), strict=True)
    for (phase, place), part in groupby(each, lambda one: (_phase(one[0]), one[1])):
        timeline.add(phase, place, [operation for operation, _ in part])
    return {
        "traceEvents": [*_names(gpu), *timeline.events],
        "displayTimeUnit": "ms",
        "otherData": {
            "source": "predicted by MemoryMark",
            "gpu": gpu.display_name,
            "batch_size": trace.batch_size,
            "step_seconds": step.seconds,
            "micro_batches": micro_batches,
        },
    }


def _phase(operation: Operation) -> int:
    """The part of the step, or -1 for copies of its inputs."""
    return PHASES.get(operation.phase, -1 if operation.phase == INPUTS else 0)


def _names(gpu: Gpu) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": gpu.display_name}}
    for name, row in _ROWS.items():
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": row, "args": {"name": name}}


@dataclass
class _Timeline:
    """Lays out phases one after another, as :mod:`engine.prediction.timing.launch_queue` has them.

    Attributes:
        events: Events so far.
    """

    gpu: Gpu
    precision: Precision
    events: list[Event] = field(default_factory=list)
    _host: float = 0.0
    _free: float = 0.0
    _launches: float = 0.0  # of copies, which count with the phase that follows them

    def add(self, phase: int, place: int, operations: Sequence[Operation]) -> None:
        """Add the operations of one part of a phase; the host waits between two of them."""
        if phase < 0:
            self._copy(operations)
            return
        if place:
            self._host = max(self._host, self._free)
        model, time_of = speed_model(), kernel_times(self.gpu, self.precision)
        kernels = [
            (one, taken.seconds()) for one in operations if (taken := time_of(one)) is not None
        ]
        launches = self._launches + _launches(one for one, _ in kernels)
        launches += model.step_launches if phase == UPDATE and not place else 0.0
        launching, self._launches = launches * (self.gpu.launch_seconds or model.host_seconds), 0.0
        computing = sum(seconds for _, seconds in kernels)
        start = max(self._free, self._host)
        self._free = max(start + computing, self._host + launching)
        self._host += launching
        if not kernels:
            return
        self._show("phases", _PHASES[phase], start, self._free - start, {})
        idle = (self._free - start - computing) / len(kernels)
        begun = start
        for operation, seconds in kernels:
            begun += idle
            self._show("kernels", operation.name, begun, seconds, _facts(operation))
            begun += seconds

    def _copy(self, operations: Sequence[Operation]) -> None:
        """The host waits for a copy from its memory, which waits for the GPU."""
        copied = sum(one.bytes_moved for one in operations) / 2
        seconds = copied / speed_model().copy_bytes_per_second
        start = max(self._free, self._host)
        self._show("phases", "inputs", start, seconds, {"bytes": int(copied)})
        self._host = self._free = start + seconds
        self._launches += _launches(operations)

    def _show(self, row: str, name: str, start: float, seconds: float, facts: Event) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": row,
                "name": name,
                "pid": 0,
                "tid": _ROWS[row],
                "ts": start * _MICROSECONDS,
                "dur": seconds * _MICROSECONDS,
                "args": facts,
            }
        )


def _launches(operations: Iterable[Operation]) -> float:
    model = speed_model()
    return sum(model.launches[launch_of(one)] for one in operations)


def _facts(operation: Operation) -> Event:
    return {
        "dtype": operation.dtype,
        "flops": operation.flops,
        "bytes": operation.bytes_moved,
        "phase": operation.phase,
    }
