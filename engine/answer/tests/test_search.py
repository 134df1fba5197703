"""The search finds the limit of any probe, with only two probes if the guess is good."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.answer.search import find_largest, line_to
from engine.interface.request import MAX_BATCH_SIZE
from engine.interface.trial import Source, Trial

MIB = 1024**2
FIXED_BYTES, SAMPLE_BYTES = 1000 * MIB, 70 * MIB

SIZES = st.one_of(st.integers(1, 40), st.integers(1, MAX_BATCH_SIZE))
GUESSES = st.one_of(st.none(), SIZES, st.integers(-5, 10**9))


class Probe:
    """Fits by a rule, records the sizes probed, and refuses to probe one twice."""

    def __init__(
        self, fits: Callable[[int], bool], reserved: Callable[[int], int | None] = lambda _: None
    ) -> None:
        self.fits, self.reserved = fits, reserved
        self.asked: list[int] = []

    def __call__(self, batch_size: int) -> Trial:
        assert batch_size not in self.asked, "the same size was tried twice"
        self.asked.append(batch_size)
        return self.trial(batch_size)

    def trial(self, batch_size: int) -> Trial:
        return Trial(
            batch_size,
            fits=self.fits(batch_size),
            source=Source.PREDICTED,
            peak_reserved_bytes=self.reserved(batch_size),
        )


def up_to(threshold: int) -> Callable[[int], bool]:
    return lambda batch_size: batch_size <= threshold


def affine(batch_size: int) -> int:
    return FIXED_BYTES + SAMPLE_BYTES * batch_size


def affine_probe(threshold: int, failures_tell: bool) -> tuple[Probe, int]:
    """A probe with linear memory, and the limit at which ``threshold`` still fits.

    Failures report how much they would have needed, or only how far they came.
    """
    fits = up_to(threshold)
    limit_bytes = affine(threshold) + SAMPLE_BYTES // 3

    def reserved(batch_size: int) -> int:
        if failures_tell or fits(batch_size):
            return affine(batch_size)
        return limit_bytes - 5 * MIB

    return Probe(fits, reserved), limit_bytes


# --- The answer ------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    threshold=st.integers(0, 300),
    batch_multiple=st.integers(1, 40),
    guess=st.one_of(st.none(), st.integers(-10, 400)),
    largest=st.integers(40, 250),
    memory=st.dictionaries(st.integers(1, 300), st.integers(0, 10**6)),
    limit_bytes=st.one_of(st.none(), st.integers(0, 10**6)),
    known_sizes=st.lists(st.integers(1, 300), max_size=4, unique=True),
)
def test_the_search_agrees_with_a_scan_of_every_size_for_any_guess_and_memory(
    threshold: int,
    batch_multiple: int,
    guess: int | None,
    largest: int,
    memory: dict[int, int],
    limit_bytes: int | None,
    known_sizes: list[int],
) -> None:
    probe = Probe(up_to(threshold), memory.get)
    known = [probe.trial(size) for size in known_sizes]
    outcome = find_largest(
        probe,
        batch_multiple=batch_multiple,
        guess=guess,
        limit_bytes=limit_bytes,
        known=known,
        largest=largest,
    )
    multiples = range(batch_multiple, largest + 1, batch_multiple)
    assert outcome.largest_batch_size == max([s for s in multiples if s <= threshold], default=0)
    assert outcome.next_batch_size == outcome.largest_batch_size + batch_multiple
    assert outcome.next_batch_size_fails == (outcome.next_batch_size <= largest)
    assert set(probe.asked) <= set(multiples)
    assert not set(probe.asked) & set(known_sizes)
    assert outcome.trials == known + [probe.trial(size) for size in probe.asked]


@settings(deadline=None)
@given(
    fitting=st.sets(st.integers(1, 64)),
    guess=st.one_of(st.none(), st.integers(1, 64)),
    memory=st.dictionaries(st.integers(1, 64), st.integers(0, 1000)),
)
def test_the_certificate_holds_even_where_fitting_is_not_monotone(
    fitting: set[int], guess: int | None, memory: dict[int, int]
) -> None:
    probe = Probe(fitting.__contains__, memory.get)
    outcome = find_largest(probe, guess=guess, limit_bytes=500, largest=64)
    tried = {trial.batch_size: trial.fits for trial in outcome.trials}
    if outcome.largest_batch_size > 0:
        assert tried[outcome.largest_batch_size]
    if outcome.next_batch_size_fails:
        assert not tried[outcome.next_batch_size]
    else:
        assert outcome.largest_batch_size == 64


def test_the_smallest_known_failure_outweighs_a_known_fit_above_it() -> None:
    probe = Probe(up_to(20))
    known = [
        replace(probe.trial(32), fits=True),
        replace(probe.trial(16), fits=False),
        probe.trial(8),
    ]
    outcome = find_largest(probe, known=known)
    assert (outcome.largest_batch_size, outcome.next_batch_size) == (15, 16)
    assert outcome.next_batch_size_fails
    assert max(probe.asked) < 16


def test_a_search_may_find_that_nothing_fits() -> None:
    probe = Probe(up_to(7))
    outcome = find_largest(probe, batch_multiple=8)
    assert (outcome.largest_batch_size, outcome.next_batch_size) == (0, 8)
    assert outcome.next_batch_size_fails
    assert probe.asked == [8]


def test_a_search_may_find_that_everything_fits() -> None:
    probe = Probe(up_to(10**9))
    outcome = find_largest(probe, batch_multiple=24)
    assert outcome.largest_batch_size == MAX_BATCH_SIZE // 24 * 24
    assert not outcome.next_batch_size_fails
    assert max(probe.asked) <= MAX_BATCH_SIZE


def test_a_multiple_beyond_the_bound_is_refused() -> None:
    for batch_multiple in (0, -1, 9):
        with pytest.raises(ValueError, match="multiple"):
            find_largest(Probe(up_to(1)), batch_multiple=batch_multiple, largest=8)


def test_a_probe_that_reports_another_size_is_refused() -> None:
    probe = Probe(up_to(100))
    with pytest.raises(ValueError, match="tried 50, got 51"):
        find_largest(lambda size: probe.trial(size + 1), guess=50)


# --- The number of probes --------------------------------------------------------------------


@settings(deadline=None)
@given(
    fitting_units=st.integers(1, 2000),
    batch_multiple=st.sampled_from([1, 8, 24]),
    off=st.sampled_from([0, 1]),
)
def test_a_guess_on_either_side_of_the_limit_is_certified_with_two_probes(
    fitting_units: int, batch_multiple: int, off: int
) -> None:
    threshold = fitting_units * batch_multiple
    probe = Probe(up_to(threshold))
    guess = threshold + off * batch_multiple
    outcome = find_largest(probe, batch_multiple=batch_multiple, guess=guess)
    assert outcome.largest_batch_size == threshold
    assert sorted(probe.asked) == [threshold, threshold + batch_multiple]


def test_a_good_guess_and_its_neighbour_are_tried_before_extrapolating() -> None:
    probe = Probe(up_to(288), lambda size: 2 * size)
    known = [probe.trial(8), probe.trial(16)]
    find_largest(probe, guess=288, limit_bytes=2000, known=known)
    assert probe.asked == [288, 289]


def test_memory_reserved_by_a_failed_trial_is_not_taken_as_its_need() -> None:
    probe, limit_bytes = affine_probe(500, failures_tell=False)
    find_largest(probe, guess=600, limit_bytes=limit_bytes, known=[probe.trial(16)])
    assert probe.asked == [600, 599, 597, 593, 585, 569, 537, 473, 500, 501]


def test_neighbours_that_reserve_the_same_do_not_mislead() -> None:
    """Memory is reserved in steps of 20 MiB, 3 MiB per sample, so only far points show a slope."""

    def reserved(batch_size: int) -> int:
        return -(-3 * batch_size // 20) * 20 * MIB

    probe = Probe(lambda size: reserved(size) <= 3000 * MIB, reserved)
    known = [probe.trial(16)]
    outcome = find_largest(probe, guess=894, limit_bytes=3000 * MIB, known=known)
    assert outcome.largest_batch_size == 1000
    assert len(probe.asked) <= 6


@settings(deadline=None)
@given(threshold=st.integers(1, 60_000), guess=SIZES)
def test_any_guess_is_corrected_within_four_probes_where_memory_is_linear(
    threshold: int, guess: int
) -> None:
    probe, limit_bytes = affine_probe(threshold, failures_tell=True)
    outcome = find_largest(probe, guess=guess, limit_bytes=limit_bytes)
    assert outcome.largest_batch_size == threshold
    assert len(probe.asked) <= 4


@settings(deadline=None)
@given(threshold=st.integers(17, 60_000), guess=SIZES)
def test_a_measured_search_from_below_needs_four_probes_plus_the_baseline(
    threshold: int, guess: int
) -> None:
    """Running out of memory does not reveal the need, so both points of the line fit."""
    probe, limit_bytes = affine_probe(threshold, failures_tell=False)
    outcome = find_largest(
        probe, guess=min(guess, threshold + 1), limit_bytes=limit_bytes, known=[probe.trial(16)]
    )
    assert outcome.largest_batch_size == threshold
    assert len(probe.asked) <= 4


@settings(deadline=None)
@given(
    threshold=st.integers(50, 2000),
    too_low=st.floats(0, 0.1),
    noise=st.lists(st.integers(-2 * MIB, 2 * MIB), min_size=4, max_size=4),
)
def test_a_guess_ten_percent_too_low_and_noise_of_2_mib_cost_at_most_six_probes(
    threshold: int, too_low: float, noise: list[int]
) -> None:
    _, limit_bytes = affine_probe(threshold, failures_tell=False)
    probe = Probe(up_to(threshold), lambda size: affine(size) + noise[size % 4])
    outcome = find_largest(
        probe,
        guess=round(threshold * (1 - too_low)),
        limit_bytes=limit_bytes,
        known=[probe.trial(16)],
    )
    assert outcome.largest_batch_size == threshold
    assert len(probe.asked) <= 6


def memory_of(_batch_size: int) -> None:
    """The signature of a made-up memory function."""


@settings(deadline=None, max_examples=100)
@given(
    threshold=st.integers(0, MAX_BATCH_SIZE + 10),
    guess=GUESSES,
    memory=st.functions(like=memory_of, returns=st.integers(0, 10**6), pure=True),
    limit_bytes=st.one_of(st.none(), st.integers(0, 10**6)),
)
def test_the_worst_case_is_logarithmic(
    threshold: int, guess: int | None, memory: Callable[[int], int], limit_bytes: int | None
) -> None:
    probe = Probe(up_to(threshold), memory)
    find_largest(probe, guess=guess, limit_bytes=limit_bytes)
    assert len(probe.asked) <= 2 * math.ceil(math.log2(MAX_BATCH_SIZE)) + 6


@settings(deadline=None, max_examples=100)
@given(
    threshold=st.integers(0, MAX_BATCH_SIZE + 10),
    expected=st.lists(st.integers(-5, MAX_BATCH_SIZE + 10), min_size=1),
    batch_multiple=st.sampled_from([1, 8, 24]),
    known=st.lists(SIZES, max_size=2, unique=True),
)
@example(
    threshold=MAX_BATCH_SIZE,
    expected=[1] * 12 + [MAX_BATCH_SIZE + 10] * 88,  # too low, then beyond what may be tried
    batch_multiple=1,
    known=[1],
)
def test_any_expectation_ends_at_the_limit_in_logarithmically_many_probes(
    threshold: int, expected: list[int], batch_multiple: int, known: list[int]
) -> None:
    probe = Probe(up_to(threshold))
    outcome = find_largest(
        probe,
        batch_multiple=batch_multiple,
        expect=lambda trials: expected[len(trials) % len(expected)],
        known=[probe.trial(size) for size in known],
    )
    largest = min(threshold, MAX_BATCH_SIZE) // batch_multiple * batch_multiple
    assert outcome.largest_batch_size == largest
    assert len(probe.asked) <= 2 * math.ceil(math.log2(MAX_BATCH_SIZE)) + 6


@settings(deadline=None)
@given(threshold=SIZES, first=SIZES)
def test_lines_through_predicted_memory_end_at_the_limit_in_four_probes(
    threshold: int, first: int
) -> None:
    """The first known trial gives a lower bound, and with that the line is known."""
    probe, limit_bytes = affine_probe(threshold, failures_tell=True)
    outcome = find_largest(
        probe,
        expect=line_to(limit_bytes, lambda trial: trial.peak_reserved_bytes),
        known=[probe.trial(first)],
    )
    assert outcome.largest_batch_size == threshold
    assert len(probe.asked) <= 4


@pytest.mark.parametrize("known", [(), (16,), (16, 32)])
def test_lines_through_no_memory_or_memory_that_does_not_grow_only_cost_probes(
    known: tuple[int, ...],
) -> None:
    for memory in (lambda _: None, lambda _: 0, lambda _: 70):
        probe = Probe(up_to(100), memory)
        expect = line_to(100, lambda trial: trial.peak_reserved_bytes)
        outcome = find_largest(probe, expect=expect, known=[probe.trial(size) for size in known])
        assert outcome.largest_batch_size == 100


def test_an_expectation_that_failed_is_left_in_doubling_steps_until_a_batch_fits() -> None:
    probe = Probe(up_to(100))
    find_largest(probe, expect=lambda _: 108, known=[probe.trial(16)])
    assert probe.asked == [108, 107, 105, 101, 93, 97, 99, 100]


@settings(deadline=None)
@given(threshold=SIZES, distance=st.integers(0, 10_000), above=st.booleans())
def test_without_memory_numbers_the_probes_only_grow_with_the_error_of_the_guess(
    threshold: int, distance: int, above: bool
) -> None:
    guess = threshold + distance if above else threshold - distance
    probe = Probe(up_to(threshold))
    find_largest(probe, guess=min(max(guess, 1), MAX_BATCH_SIZE))
    assert len(probe.asked) <= 2 * math.log2(distance + 2) + 3


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        # Away from the last trial in doubling steps, at most halfway across the open range.
        ({"guess": 60}, [60, 61, 63, 67, 75, 91, 123, 107, 99, 103, 101, 100]),
        ({"guess": 150}, [150, 149, 147, 143, 135, 119, 87, 103, 95, 99, 101, 100]),
        ({"guess": 60, "known": (16, 120)}, [60, 61, 63, 67, 75, 91, 105, 98, 101, 100]),
        # Without a guess, from the largest known fit in steps of its size.
        ({"known": (16,)}, [32, 48, 80, 144, 112, 96, 104, 100, 102, 101]),
        ({"known": (16,), "batch_multiple": 8}, [32, 48, 80, 144, 112, 96, 104]),
        # Up to the bound and no further.
        ({"guess": 60, "largest": 80}, [60, 61, 63, 67, 75, 80]),
        ({"known": (80,), "largest": 80}, []),
        # A failure at the bound is an end of the bracket like any other.
        (
            {"guess": 10, "known": (101,), "largest": 101},
            [10, 11, 13, 17, 25, 41, 71, 86, 93, 97, 99, 100],
        ),
        ({"batch_multiple": 80, "largest": 80}, [80]),
    ],
)
def test_without_memory_numbers_the_search_doubles_and_bisects(
    asked: dict[str, Any], expected: list[int]
) -> None:
    probe = Probe(up_to(100))
    known = [probe.trial(size) for size in asked.pop("known", ())]
    find_largest(probe, known=known, **asked)
    assert probe.asked == expected


def test_misleading_memory_numbers_are_followed_at_most_four_times() -> None:
    """Memory grows quadratically, so every line through two trials is wrong."""
    probe = Probe(up_to(1000), lambda size: size**2)
    find_largest(probe, guess=10, limit_bytes=1000**2 + 500, known=[probe.trial(5)])
    assert probe.asked[:2] == [10, 11]
    assert probe.asked[2:6] == [62534, 26, 41, 56]
    assert probe.asked[6:12] == [58, 62, 70, 86, 118, 182]


def test_memory_numbers_that_do_not_rise_are_not_followed() -> None:
    probe = Probe(up_to(100), lambda _: 1000)
    find_largest(probe, guess=60, limit_bytes=2000)
    assert probe.asked == [60, 61, 63, 67, 75, 91, 123, 107, 99, 103, 101, 100]


def test_reserved_memory_is_preferred_to_allocated() -> None:
    def probe(batch_size: int) -> Trial:
        return Trial(
            batch_size,
            fits=batch_size <= 5000,
            source=Source.MEASURED,
            peak_allocated_bytes=7 * batch_size,
            peak_reserved_bytes=affine(batch_size),
        )

    outcome = find_largest(probe, guess=100, limit_bytes=affine(5000))
    assert [trial.batch_size for trial in outcome.trials] == [100, 101, 5000, 5001]


def test_a_single_reserved_number_gives_no_line() -> None:
    """One of the first two trials has no reserved memory, so the allocated memory is used."""

    def probe(batch_size: int) -> Trial:
        return Trial(
            batch_size,
            fits=batch_size <= 5000,
            source=Source.MEASURED,
            peak_allocated_bytes=affine(batch_size),
            peak_reserved_bytes=None if batch_size == 101 else 3 * affine(batch_size),
        )

    outcome = find_largest(probe, guess=100, limit_bytes=affine(5000))
    assert [trial.batch_size for trial in outcome.trials[:3]] == [100, 101, 5000]


def test_a_known_fit_at_the_bound_ends_the_search() -> None:
    probe = Probe(up_to(100))
    outcome = find_largest(probe, known=[probe.trial(64)], largest=64)
    assert (outcome.largest_batch_size, outcome.next_batch_size_fails) == (64, False)
    failed = find_largest(
        Probe(up_to(63)), known=[Probe(up_to(63)).trial(64)], largest=64, guess=63
    )
    assert (failed.largest_batch_size, failed.next_batch_size_fails) == (63, True)


def test_without_guess_or_memory_numbers_sizes_double() -> None:
    probe = Probe(up_to(100))
    find_largest(probe)
    assert probe.asked[:8] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_known_trials_are_not_repeated_and_may_suffice() -> None:
    probe = Probe(up_to(288))
    known = [probe.trial(288), probe.trial(296)]
    outcome = find_largest(probe, batch_multiple=8, guess=512, known=known)
    assert probe.asked == []
    assert (outcome.largest_batch_size, outcome.next_batch_size_fails) == (288, True)


def test_allocated_memory_is_used_where_there_is_no_reserved() -> None:
    def probe(batch_size: int) -> Trial:
        return Trial(
            batch_size,
            fits=batch_size <= 5000,
            source=Source.MEASURED,
            peak_allocated_bytes=affine(batch_size),
        )

    outcome = find_largest(probe, guess=100, limit_bytes=affine(5000))
    assert [trial.batch_size for trial in outcome.trials] == [100, 101, 5000, 5001]
