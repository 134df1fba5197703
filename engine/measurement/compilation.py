"""Cost and benefit of ``torch.compile`` for a workload, measured on this machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..core.errors import MeasurementFailed
from ..core.numbers import ms, times
from ..events import Emit, Log
from ..hub import resolve
from ..interface.trial import Source
from ..interface.workload import Workload
from .environment import device_kind
from .parent import DEADLINE_SECONDS, OutOfTime, local_device, measure_first_run
from .protocol import TrialOrder
from .steps import Steps, steps_of, time_steps
from .trials import MEASURED_NOISE

ROUNDS = 2
"""Fresh processes of each kind, interleaved."""

MIN_STEPS = 4
"""A first one, one to warm up, one timed, and one to measure memory."""


@dataclass(frozen=True)
class CompileCheck:
    """Eager vs. compiled steps. All numbers are measured.

    Times are those of the fastest round, since other work on the machine only slows rounds down. On
    shared cores, two rounds of the same steps have differed by a factor of 300.

    Attributes:
        batch_size: Samples per step.
        device: The device that it was measured on.
        eager_step_seconds, compiled_step_seconds: A step once everything is compiled.
        eager_first_seconds, compiled_first_seconds: The first step of a process, with nothing
            compiled before.
        cached_first_seconds: The first step of a later process, which finds the compiler's cache;
            ``None`` if there was none.
        eager_peak_bytes, compiled_peak_bytes: Peak allocated; ``None`` if unknown.
        speedup: Eager step time over compiled.
        pays_off_after_steps: Steps until the longer first one has paid off; ``None`` if it never
            does.
        passed: Whether compiling is a gain.
        source: ``measured``.
        verdict: The check in one sentence.
    """

    batch_size: int
    device: str
    eager_step_seconds: float
    compiled_step_seconds: float
    eager_first_seconds: float
    compiled_first_seconds: float
    cached_first_seconds: float | None
    eager_peak_bytes: int | None
    compiled_peak_bytes: int | None
    speedup: float
    pays_off_after_steps: int | None
    passed: bool
    source: Source
    verdict: str


def validate_compile(
    workload: Workload, batch_size: int, emit: Emit, rounds: int = ROUNDS
) -> CompileCheck:
    """Measure a workload compiled and eager, in interleaved fresh processes.

    Args:
        workload: The workload to train; its own ``compile`` is ignored.
        batch_size: Samples per step.
        emit: Receives log lines as the processes begin and end.
        rounds: Number of processes of each kind.

    Raises:
        InvalidInput: If the model's config cannot be fetched or trained.
        MeasurementFailed: If a step failed, for lack of time, memory or a C++ compiler, say.
    """
    workload = resolve(workload)
    device = local_device().name
    runs: dict[bool, list[FirstRun]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, rounds + 1):
            for compiled in (True, False):  # compiled first, so that an error comes at once
                what = f"Round {number} of {rounds}, {'compiled' if compiled else 'eager'}"
                emit(Log(f"{what}: at most {DEADLINE_SECONDS:.0f} s on {device}"))
                order = TrialOrder(replace(workload, compile=compiled), batch_size)
                found = _measure(order, what, Path(folder))
                runs[compiled].append(found)
                emit(
                    Log(
                        f"{what}: {found.first_step_seconds:,.1f} s the first step, "
                        f"{ms(found.step_seconds)} a later one ({Source.MEASURED})"
                    )
                )
    return compare(runs[False], runs[True], batch_size, device)


def _measure(order: TrialOrder, what: str, compiled: Path) -> FirstRun:
    """Measure one process, with advice in the error if it takes too long."""
    try:
        return FirstRun(**measure_first_run(order, compiled))
    except OutOfTime as error:
        raise MeasurementFailed(
            f"{what}: building the model, compiling and {MIN_STEPS} steps of batch "
            f"{order.batch_size:,} took longer than {DEADLINE_SECONDS:.0f} s; try a smaller batch,"
            " shorter sequences, smaller images or a config with fewer layers"
        ) from error


def compare(
    eager: list[FirstRun], compiled: list[FirstRun], batch_size: int, device: str
) -> CompileCheck:
    """The check that the runs of both kinds amount to.

    Args:
        eager: Eager runs, in order.
        compiled: Compiled runs, in order; all but the first found the compiler's cache.
        batch_size: Samples per step.
        device: The device that they ran on.
    """
    plain_steps, steps = ([run.step_seconds for run in runs] for runs in (eager, compiled))
    slow, fast = min(plain_steps), min(steps)
    plain, first = min(run.first_step_seconds for run in eager), compiled[0].first_step_seconds
    cached = [run.first_step_seconds for run in compiled[1:]]
    speedup = slow / fast
    gain = slow / max(steps) > 1 + MEASURED_NOISE  # in every round, against any eager one
    pays_off = max(1, round((first - plain) / (slow - fast))) if gain else None
    cost = f"the first one takes {max(first - plain, 0):.1f} s longer"
    if pays_off is not None:
        text = f"are {times(speedup)} as fast; {cost}, which pays off after {pays_off:,} steps"
    elif max(plain_steps) / fast < 1 - MEASURED_NOISE:
        text = f"are slower ({times(speedup)} the eager speed), and {cost}: no gain"
    elif speedup > 1 + MEASURED_NOISE:
        text = f"are {times(speedup)} as fast, but not in every round, and {cost}: no gain"
    else:
        text = f"are no faster ({times(speedup)} the eager speed), and {cost}: no gain"
    return CompileCheck(
        batch_size=batch_size,
        device=device,
        eager_step_seconds=slow,
        compiled_step_seconds=fast,
        eager_first_seconds=plain,
        compiled_first_seconds=first,
        cached_first_seconds=min(cached, default=None),
        eager_peak_bytes=_peak(eager),
        compiled_peak_bytes=_peak(compiled),
        speedup=speedup,
        pays_off_after_steps=pays_off,
        passed=gain,
        source=Source.MEASURED,
        verdict=f"At batch {batch_size:,}, compiled steps {text} ({Source.MEASURED}).",
    )


def _peak(runs: list[FirstRun]) -> int | None:
    peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
    return max(peaks) if peaks else None


@dataclass(frozen=True)
class FirstRun:
    """Step times of one process.

    Attributes:
        first_step_seconds: The first step, which includes compiling.
        step_seconds: Median of the steps after it.
        peak_bytes: Peak allocated of one of those; ``None`` if unknown (MPS).
    """

    first_step_seconds: float
    step_seconds: float
    peak_bytes: int | None


def first_run(order: TrialOrder) -> FirstRun:
    """Time the first step and those after it, in this process."""
    device = device_kind()
    steps = steps_of(order)
    steps.build(device)
    steps.begin()

    def timed_step() -> float:
        begin = time.perf_counter()
        steps.step()
        _wait(device)
        return time.perf_counter() - begin

    first = timed_step()
    timed_step()  # the optimizer's state exists, and the compiler has seen it
    return FirstRun(first, time_steps(timed_step).median, _PEAKS[device](steps))


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def _cuda_peak(steps: Steps) -> int:
    torch.cuda.reset_peak_memory_stats()
    steps.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def _cpu_peak(steps: Steps) -> int:
    """Most live bytes in one step, from the events of PyTorch's CPU allocator.

    Compiled code creates tensors without the dispatcher, so a recorder of operators does not see
    them. The allocator sees all of them.
    """
    training = steps.recorded
    states = training.optimizer.state.values() if training.optimizer is not None else ()
    kept = [*training.model.parameters(), *training.model.buffers()]
    kept += [t for state in states for t in state.values() if isinstance(t, torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in kept}
    peak = live = sum(storage.nbytes() for storage in storages.values())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        steps.step()
    for _, size in sorted(_allocations(profile)):
        live += size
        peak = max(peak, live)
    return peak


def _allocations(profile: torch.profiler.profile) -> list[tuple[int, int]]:
    """Times in ns with the bytes allocated (positive) or freed (negative)."""
    if profile.profiler is None or profile.profiler.kineto_results is None:
        raise ValueError("the profiler has no events")
    pending = list(profile.profiler.kineto_results.experimental_event_tree())
    found: list[tuple[int, int]] = []
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        if event.tag.name == "Allocation":
            # The attribute belongs to one member of a union that has no common type.
            size: int = getattr(event.extra_fields, "alloc_size")  # noqa: B009  # see above
            found.append((event.start_time_ns, size))
    return found


def _no_peak(steps: Steps) -> None:
    """Metal has no peak counter, and sampling would need a hook after each operator."""


_PEAKS: dict[str, Callable[[Steps], int | None]] = {
    "cuda": _cuda_peak,
    "mps": _no_peak,
    "cpu": _cpu_peak,
}
