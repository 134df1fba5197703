"""Interleaved measurements of current and recommended batch, so that drift looks like no gain."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..answer.economics import compare, speedup_in_turn
from ..answer.worth import WORTH_MEASURED
from ..core.errors import MeasurementFailed
from ..core.numbers import rate, times, times_range
from ..events import Emit, Log
from ..interface.result import Comparison
from ..interface.trial import Probe, Trial

ROUNDS = 6
"""The fewest for which the interval covers the true speedup with more than 95% probability."""
MIN_ROUNDS = 3
"""Their interval covers it with 75% probability; fewer say nothing."""
ENOUGH_SECONDS = 120.0
"""After this long, no round beyond the fewest starts."""
MAX_SECONDS = 240.0
"""After this long, no round starts at all: the analysis has a deadline, and the limit is known."""


def measure_in_turn(
    run: Probe,
    current: Trial,
    recommended: Trial,
    emit: Emit,
    clock: Callable[[], float] = time.monotonic,
) -> Comparison | None:
    """Measure both batch sizes in each of several rounds.

    Every second round starts with the recommended batch (A B, B A, …). Otherwise a steady drift,
    such as a GPU warming up, would slow down the same one in every round.

    Args:
        run: Runs one trial of a batch size in a fresh process.
        current: The trial of the current batch size.
        recommended: The trial of the recommended one.
        emit: Receives log lines.
        clock: Seconds since any moment.

    Returns:
        ``None`` if there is nothing to compare, or too few rounds could be run.
    """
    if not comparable(current, recommended):
        return None
    begin = clock()
    speeds: dict[int, list[float]] = {current.batch_size: [], recommended.batch_size: []}
    for number in range(ROUNDS):
        if clock() - begin > (MAX_SECONDS if number < MIN_ROUNDS else ENOUGH_SECONDS):
            break
        sizes = list(speeds) if number % 2 == 0 else list(reversed(speeds))
        try:
            trials = [run(size) for size in sizes]
        except MeasurementFailed as error:  # the limit is certified all the same
            emit(Log(f"The comparison ends early: {error}", "warning"))
            break
        if failed := [trial.batch_size for trial in trials if not trial.samples_per_second]:
            emit(Log(f"Batch {failed[0]:,} fitted before but no longer does", "warning"))
            break
        for trial in trials:
            speeds[trial.batch_size].append(trial.samples_per_second or 0.0)
        emit(Log(_summary(number + 1, speeds)))
    if len(speeds[current.batch_size]) < MIN_ROUNDS:
        emit(Log("Too few rounds to compare the two batches", "warning"))
        return None
    comparison = compare(speeds[current.batch_size], speeds[recommended.batch_size])
    found = speedup_in_turn(comparison)
    interval = times_range(found.low, found.high)
    emit(Log(f"Interleaved: {times(found.ratio)} as fast, range {interval}"))
    return comparison


def comparable(current: Trial, recommended: Trial) -> bool:
    return current.batch_size != recommended.batch_size and current.fits and recommended.fits


def about_rounds(comparison: Comparison | None, noise: float) -> list[str]:
    """A caveat on how two batches were compared.

    Args:
        comparison: The rounds; ``None`` if there were too few.
        noise: The relative error assumed in that case.
    """
    if comparison is None:
        return [
            "The two batches could not be measured in interleaved rounds, so the speedup compares "
            f"two separate trials and may be off by up to {100 * noise:.0f}% (assumed)."
        ]
    return [
        f"The speedup is the ratio of the median speeds of "
        f"{len(comparison.current_samples_per_second)} interleaved rounds in fresh processes. Its "
        "range is that of the ratios of single rounds, which contains the true one with "
        f"{100 * comparison.coverage:.0f}% confidence. A change is worth it from "
        f"{times(WORTH_MEASURED)} on, if every round is faster."
    ]


def _summary(number: int, speeds: dict[int, list[float]]) -> str:
    speeds_now = [f"batch {size:,} at {rate(done[-1])}" for size, done in speeds.items()]
    return f"Round {number}: {', '.join(speeds_now)} (measured)"
