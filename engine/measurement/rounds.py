"""Current and recommended batch measured again in turn, so that drift is not taken for a gain."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.answer.comparison import compare, speedup_in_turn
from engine.errors import MeasurementFailed
from engine.events import Event, Log
from engine.result import Comparison, Trial

ROUNDS = 6
"""The fewest that make the interval cover the true speedup with more than 95 %."""
FEWEST_ROUNDS = 3
"""Their interval covers it with 75 %; fewer say nothing."""
ENOUGH_SECONDS = 120.0
"""After so long no round beyond the fewest begins."""
MOST_SECONDS = 240.0
"""After so long no round begins at all: the answer has a deadline, and the limit is certified."""


def measure_in_turn(
    run: Callable[[int], Trial],
    current: Trial,
    recommended: Trial,
    emit: Callable[[Event], None],
    clock: Callable[[], float] = time.monotonic,
) -> Comparison | None:
    """Measure the two batch sizes one after the other, round by round.

    Every second round begins with the recommended batch (A B, B A, …): else a steady drift, as of a
    GPU that warms up, would slow the same one down in every round.

    Args:
        run: Runs one trial of a batch size in a fresh process.
        current: The trial of the current batch size.
        recommended: That of the recommended one.
        emit: Receives log lines.
        clock: Seconds since any moment.

    Returns:
        ``None`` where there is nothing to compare, or where too few rounds could be run.
    """
    if not comparable(current, recommended):
        return None
    begin = clock()
    speeds: dict[int, list[float]] = {current.batch_size: [], recommended.batch_size: []}
    for number in range(ROUNDS):
        if clock() - begin > (MOST_SECONDS if number < FEWEST_ROUNDS else ENOUGH_SECONDS):
            break
        sizes = list(speeds) if number % 2 == 0 else list(reversed(speeds))
        try:
            trials = [run(size) for size in sizes]
        except MeasurementFailed as error:  # the limit is certified all the same
            emit(Log(f"Comparing ends early: {error}", "warning"))
            break
        if failed := [trial.batch_size for trial in trials if not trial.samples_per_second]:
            emit(Log(f"Batch {failed[0]:,} fitted before and no longer does", "warning"))
            break
        for trial in trials:
            speeds[trial.batch_size].append(trial.samples_per_second or 0.0)
        emit(Log(_in_words(number + 1, speeds)))
    if len(speeds[current.batch_size]) < FEWEST_ROUNDS:
        emit(Log("Too few rounds to compare the two batches", "warning"))
        return None
    comparison = compare(speeds[current.batch_size], speeds[recommended.batch_size])
    found = speedup_in_turn(comparison)
    emit(Log(f"In turn: {found.ratio:.3f} times as fast, {found.low:.3f} to {found.high:.3f}"))
    return comparison


def comparable(current: Trial, recommended: Trial) -> bool:
    """Whether there are two batches to compare."""
    return current.batch_size != recommended.batch_size and current.fits and recommended.fits


def about_rounds(comparison: Comparison | None, noise: float) -> list[str]:
    """What a reader has to know of how two batches were compared.

    Args:
        comparison: Of the rounds; ``None`` where there were too few.
        noise: What is assumed instead, as a share.
    """
    if comparison is None:
        return [
            "The two batches could not be measured in turn, so the speedup compares two trials "
            f"made one after the other and is assumed to be off by up to {100 * noise:.0f} %."
        ]
    return [
        f"The speedup is the ratio of the median speeds of "
        f"{len(comparison.current_samples_per_second)} rounds; in each, both batches ran one after "
        "the other, in fresh processes. Its interval goes from the lowest to the highest ratio of "
        f"a round and holds the true one with {100 * comparison.coverage:.0f} %; where it "
        "reaches down to 1, there is no gain."
    ]


def _in_words(number: int, speeds: dict[int, list[float]]) -> str:
    figures = [f"batch {size:,} at {done[-1]:,.1f} samples/s" for size, done in speeds.items()]
    return f"Round {number} in turn: {', '.join(figures)} (measured)"
