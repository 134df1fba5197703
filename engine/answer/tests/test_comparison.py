"""Two batch sizes measured in turn, and the speedup that follows."""

from __future__ import annotations

import random
from itertools import count
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.economics import compare, coverage, speedup_in_turn
from engine.core.errors import MeasurementFailed
from engine.events import Event, Log
from engine.interface.trial import Source, Trial
from engine.measurement.rounds import (
    ENOUGH_SECONDS,
    MAX_SECONDS,
    MIN_ROUNDS,
    ROUNDS,
    about_rounds,
    measure_in_turn,
)

ROUNDS_OF_SPEEDS = st.lists(
    st.tuples(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6)), min_size=1, max_size=12
)


def trial(batch_size: int, speed: float | None = 10.0) -> Trial:
    return Trial(batch_size, speed is not None, Source.MEASURED, samples_per_second=speed)


@given(ROUNDS_OF_SPEEDS)
def test_the_speedup_lies_within_its_interval(rounds: list[tuple[float, float]]) -> None:
    slow, fast = zip(*rounds, strict=True)
    found = speedup_in_turn(compare(slow, fast))
    assert found.ratio == median(fast) / median(slow)
    assert found.low <= found.ratio * (1 + 1e-9)
    assert found.ratio <= found.high * (1 + 1e-9)


def test_a_drift_that_slows_both_batches_is_no_gain() -> None:
    throttled = [100 * 0.9**number for number in range(6)]
    found = speedup_in_turn(compare(throttled, throttled))
    assert (found.low, found.ratio, found.high) == (1, 1, 1)
    assert not found.is_gain


def test_a_gain_counts_only_if_every_round_shows_it() -> None:
    assert speedup_in_turn(compare([10, 11, 9], [12, 12, 11])).is_gain
    assert not speedup_in_turn(compare([10, 13, 9], [12, 12, 11])).is_gain


def test_the_interval_covers_the_true_ratio_as_often_as_stated() -> None:
    draw = random.Random(1)  # noqa: S311  # no secret
    tries, covered = 4000, 0
    for _ in range(tries):
        slow, fast = ([draw.lognormvariate(0, 0.1) for _ in range(ROUNDS)] for _ in range(2))
        found = speedup_in_turn(compare(slow, fast))
        covered += found.low <= 1 <= found.high
    assert covered / tries == pytest.approx(coverage(ROUNDS), abs=0.01)
    assert coverage(ROUNDS) > 0.95
    assert coverage(MIN_ROUNDS) == 0.75


@pytest.mark.parametrize(("slow", "fast"), [([], []), ([1.0], [1.0, 2.0])])
def test_an_incomplete_round_is_refused(slow: list[float], fast: list[float]) -> None:
    with pytest.raises(ValueError, match="whole round"):
        compare(slow, fast)


def test_the_batches_take_turns_and_neither_always_comes_first() -> None:
    tried: list[int] = []

    def run(batch_size: int) -> Trial:
        tried.append(batch_size)
        return trial(batch_size, batch_size * 2.0)

    said: list[Event] = []
    found = measure_in_turn(run, trial(16), trial(64), said.append)
    assert tried == [16, 64, 64, 16] * (ROUNDS // 2)
    assert found == compare([32.0] * ROUNDS, [128.0] * ROUNDS)
    assert len([event for event in said if isinstance(event, Log)]) == ROUNDS + 1


def test_slow_trials_run_the_minimum_of_rounds() -> None:
    clock = count(step=ENOUGH_SECONDS / 2)
    found = measure_in_turn(trial, trial(16), trial(64), print, clock=lambda: next(clock))
    assert found is not None
    assert len(found.current_samples_per_second) == MIN_ROUNDS


def test_trials_that_take_minutes_are_not_repeated_forever() -> None:
    clock = count(step=MAX_SECONDS + 1)
    said: list[Event] = []
    found = measure_in_turn(trial, trial(16), trial(64), said.append, clock=lambda: next(clock))
    assert found is None
    assert said[-1] == Log("Too few rounds to compare the two batches", "warning")
    assert "may be off by up to 5% (assumed)" in about_rounds(found, 0.05)[0]


@pytest.mark.parametrize(
    ("current", "recommended"),
    [(trial(16), trial(16)), (trial(16, None), trial(8)), (trial(16), trial(64, None))],
)
def test_nothing_runs_where_there_is_nothing_to_compare(current: Trial, recommended: Trial) -> None:
    def run(batch_size: int) -> Trial:
        pytest.fail(f"batch {batch_size} was run")

    assert measure_in_turn(run, current, recommended, print) is None


def test_a_late_failure_only_discards_its_round() -> None:
    left = iter(range(2 * MIN_ROUNDS + 1))

    def run(batch_size: int) -> Trial:
        if next(left) == 2 * MIN_ROUNDS:
            raise MeasurementFailed("the driver has gone")
        return trial(batch_size)

    said: list[Event] = []
    found = measure_in_turn(run, trial(16), trial(64), said.append)
    assert found == compare([10.0] * MIN_ROUNDS, [10.0] * MIN_ROUNDS)
    assert Log("The comparison ends early: the driver has gone", "warning") in said


def test_a_batch_that_no_longer_fits_ends_the_rounds_with_a_warning() -> None:
    speeds = iter([10.0, 20.0, None, 10.0])
    said: list[Event] = []
    found = measure_in_turn(
        lambda size: trial(size, next(speeds)), trial(16), trial(64), said.append
    )
    assert found is None
    assert Log("Batch 64 fitted before but no longer does", "warning") in said
