"""What ``torch.compile`` is worth for a workload on this machine, measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from engine.measurement.analysis import MEASURED_NOISE
from engine.measurement.first_run import FirstRun
from engine.measurement.parent import local_device, measure_first_run
from engine.measurement.protocol import TrialOrder
from engine.models.hub import resolve
from engine.result import Source
from engine.workload import Workload

ROUNDS = 2
"""Fresh processes of each kind, eager and compiled in turn."""


@dataclass(frozen=True)
class CompileCheck:
    """Eager steps against compiled ones. All figures are measured, medians of the rounds.

    Attributes:
        batch_size: Samples per step.
        device: What it was measured on.
        eager_step_seconds, compiled_step_seconds: A step, once everything is compiled.
        eager_first_seconds, compiled_first_seconds: The first step of a process.
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
    eager_peak_bytes: int | None
    compiled_peak_bytes: int | None
    speedup: float
    pays_off_after_steps: int | None
    passed: bool
    source: Source
    verdict: str


def validate_compile(workload: Workload, batch_size: int, rounds: int = ROUNDS) -> CompileCheck:
    """Measure a workload eager and compiled, in fresh processes, one after the other in turn.

    Args:
        workload: What is trained; its own ``compile`` does not matter.
        batch_size: Samples per step.
        rounds: How many processes of each kind.

    Raises:
        InvalidInput: If the model's config cannot be had, or no model can be trained of it.
        MeasurementFailed: If a step failed, for want of memory or of a C++ compiler for example.
    """
    workload = resolve(workload)
    runs: dict[bool, list[FirstRun]] = {False: [], True: []}
    for _ in range(rounds):
        for compiled in (False, True):
            order = TrialOrder(replace(workload, compile=compiled), batch_size)
            runs[compiled].append(FirstRun(**measure_first_run(order)))
    return compare(runs[False], runs[True], batch_size, local_device().name)


def compare(
    eager: list[FirstRun], compiled: list[FirstRun], batch_size: int, device: str
) -> CompileCheck:
    """Say what compiling is worth, from the runs of both kinds."""
    slow, fast = (median(run.step_seconds for run in runs) for runs in (eager, compiled))
    plain, first = (median(run.first_step_seconds for run in runs) for runs in (eager, compiled))
    speedup = slow / fast
    gain = speedup > 1 + MEASURED_NOISE
    pays_off = max(1, round((first - plain) / (slow - fast))) if gain else None
    cost = f"the first one takes {max(first - plain, 0):.1f} s more"
    if pays_off is not None:
        said = f"run {speedup:.2f} times as fast; {cost}, made up for after {pays_off:,} steps"
    elif speedup < 1 - MEASURED_NOISE:
        said = f"are slower ({speedup:.2f} times the eager speed), and {cost}: no gain"
    else:
        said = f"are no faster ({speedup:.2f} times the eager speed), and {cost}: no gain"
    return CompileCheck(
        batch_size=batch_size,
        device=device,
        eager_step_seconds=slow,
        compiled_step_seconds=fast,
        eager_first_seconds=plain,
        compiled_first_seconds=first,
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
