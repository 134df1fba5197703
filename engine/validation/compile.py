"""What ``torch.compile`` is worth for a workload on this machine, measured."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import MeasurementFailed
from engine.events import Event, Log
from engine.measurement.analysis import MEASURED_NOISE
from engine.measurement.first_run import FirstRun
from engine.measurement.parent import (
    DEADLINE_SECONDS,
    local_device,
    measure_first_run,
)
from engine.measurement.processes import OutOfTime
from engine.measurement.protocol import TrialOrder
from engine.models.hub import resolve
from engine.result import Source
from engine.workload import Workload

ROUNDS = 2
"""Fresh processes of each kind, in turn."""

FEWEST_STEPS = 4
"""A first one, one to warm up, one timed, and one to see its memory."""


@dataclass(frozen=True)
class CompileCheck:
    """Eager steps against compiled ones. All figures are measured.

    Times are those of the fastest round, for what makes a round slow is other work on the machine:
    two rounds of the same steps were seen to differ three hundredfold where the cores were shared.

    Attributes:
        batch_size: Samples per step.
        device: What it was measured on.
        eager_step_seconds, compiled_step_seconds: A step, once everything is compiled.
        eager_first_seconds, compiled_first_seconds: The first step of a process; nothing was
            compiled before.
        cached_first_seconds: The first step of a further process, which finds what the one before
            has compiled; ``None`` if there was none.
        eager_peak_bytes, compiled_peak_bytes: Peak allocated; ``None`` where it is not known.
        speedup: Eager step time over compiled.
        pays_off_after_steps: Steps until the longer first one is made up for; ``None`` if it is
            never.
        passed: Whether compiling is a gain at all.
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
    workload: Workload, batch_size: int, emit: Callable[[Event], None], rounds: int = ROUNDS
) -> CompileCheck:
    """Measure a workload compiled and eager, in fresh processes, one after the other in turn.

    Args:
        workload: What is trained; its own ``compile`` does not matter.
        batch_size: Samples per step.
        emit: Receives log lines as the processes begin and end.
        rounds: How many processes of each kind.

    Raises:
        InvalidInput: If the model's config cannot be had, or no model can be trained of it.
        MeasurementFailed: If a step failed, for want of time, memory or a C++ compiler for example.
    """
    workload = resolve(workload)
    device = local_device().name
    runs: dict[bool, list[FirstRun]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, rounds + 1):
            for compiled in (True, False):  # what cannot be compiled is told at once
                what = f"Round {number} of {rounds}, {'compiled' if compiled else 'eager'}"
                emit(Log(f"{what}: at most {DEADLINE_SECONDS:.0f} s on {device}"))
                order = TrialOrder(replace(workload, compile=compiled), batch_size)
                found = _measure(order, what, Path(folder))
                runs[compiled].append(found)
                emit(
                    Log(
                        f"{what}: {found.first_step_seconds:,.1f} s the first step, "
                        f"{1e3 * found.step_seconds:,.1f} ms a later one ({Source.MEASURED})"
                    )
                )
    return compare(runs[False], runs[True], batch_size, device)


def _measure(order: TrialOrder, what: str, compiled: Path) -> FirstRun:
    """Measure one process; what to do about it is said if it takes too long."""
    try:
        return FirstRun(**measure_first_run(order, compiled))
    except OutOfTime as error:
        raise MeasurementFailed(
            f"{what}: building the model, compiling and {FEWEST_STEPS} steps of batch "
            f"{order.batch_size:,} took longer than {DEADLINE_SECONDS:.0f} s; take a smaller batch,"
            " shorter sequences or smaller images, or a config with fewer layers"
        ) from error


def compare(
    eager: list[FirstRun], compiled: list[FirstRun], batch_size: int, device: str
) -> CompileCheck:
    """Say what compiling is worth, from the runs of both kinds.

    Args:
        eager: In the order of running.
        compiled: The same; all but the first found what that had compiled.
        batch_size: Samples per step.
        device: What they ran on.
    """
    plain_steps, steps = ([run.step_seconds for run in runs] for runs in (eager, compiled))
    slow, fast = min(plain_steps), min(steps)
    plain, first = min(run.first_step_seconds for run in eager), compiled[0].first_step_seconds
    cached = [run.first_step_seconds for run in compiled[1:]]
    speedup = slow / fast
    gain = slow / max(steps) > 1 + MEASURED_NOISE  # in every round, against any eager one
    pays_off = max(1, round((first - plain) / (slow - fast))) if gain else None
    cost = f"the first one takes {max(first - plain, 0):.1f} s more"
    if pays_off is not None:
        said = f"run {speedup:.2f} times as fast; {cost}, made up for after {pays_off:,} steps"
    elif max(plain_steps) / fast < 1 - MEASURED_NOISE:
        said = f"are slower ({speedup:.2f} times the eager speed), and {cost}: no gain"
    elif speedup > 1 + MEASURED_NOISE:
        said = f"run {speedup:.2f} times as fast, but not in every round, and {cost}: no gain"
    else:
        said = f"are no faster ({speedup:.2f} times the eager speed), and {cost}: no gain"
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
        verdict=f"At batch {batch_size:,} compiled steps {said} ({Source.MEASURED}).",
    )


def _peak(runs: list[FirstRun]) -> int | None:
    peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
    return max(peaks) if peaks else None
