"""A replayed trace gives both peaks, and the point where it stops fitting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.allocator.caching import ALLOCATE, FREE, CachingAllocator, ReplayResult, replay
from engine.allocator.options import AllocatorOptions
from engine.interface.trial import GpuFacts
from engine.prediction.probe import predict_memory
from engine.tracing.trace import Category, Trace

MIB = 1024**2

# Each step allocates a size, or frees one of the live tensors (chosen by the number, modulo). Long
# lists are asked for, since hypothesis makes short ones by itself.
SIZES = st.one_of(st.integers(0, 4096), st.integers(1, 3 * MIB), st.integers(1, 64 * MIB))
STEP = st.tuples(st.sampled_from([ALLOCATE, ALLOCATE, ALLOCATE, FREE, FREE]), SIZES)
STEPS = st.one_of(st.lists(STEP), st.lists(STEP, min_size=40, max_size=120))


def trace_of(steps: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Steps as events and sizes; a free names a live tensor."""
    events: list[tuple[int, int]] = []
    sizes: list[int] = []
    live: list[int] = []
    for kind, number in steps:
        if kind == ALLOCATE:
            live.append(len(sizes))
            events.append((ALLOCATE, len(sizes)))
            sizes.append(number)
        elif live:
            events.append((FREE, live.pop(number % len(live))))
    return events, sizes


def test_a_replay_reports_both_peaks_and_where_the_first_is_reached() -> None:
    sizes = [10 * MIB, 30 * MIB, 30 * MIB]
    events = [(ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1), (ALLOCATE, 2), (FREE, 0), (FREE, 2)]
    assert replay(events, sizes) == ReplayResult(
        fits=True,
        peak_allocated_bytes=40 * MIB,
        peak_reserved_bytes=40 * MIB,
        retries=0,
        peak_event_index=1,
    )


def test_a_replay_that_does_not_fit_says_where_and_for_what() -> None:
    result = replay([(ALLOCATE, 0), (FREE, 0), (ALLOCATE, 1)], [4 * MIB, 41 * MIB], 40 * MIB)
    assert result == ReplayResult(
        fits=False,
        peak_allocated_bytes=4 * MIB,
        peak_reserved_bytes=20 * MIB,
        retries=1,
        peak_event_index=0,
        failed_event_index=2,
        failed_request_bytes=41 * MIB,
    )


def test_a_replay_that_needs_retries_says_so() -> None:
    events = [(ALLOCATE, 0), (FREE, 0), (ALLOCATE, 1), (FREE, 1), (ALLOCATE, 0)]
    result = replay(events, [30 * MIB, 32 * MIB], 40 * MIB)
    assert (result.fits, result.retries) == (True, 1)


def test_more_memory_can_fail_where_less_fits() -> None:
    """This is PyTorch's real behaviour: freeing segments early can prevent fragmentation.

    With 34 MiB the first segment is freed before the second is allocated. With 36 MiB both stay,
    the next two requests use one each, and no room is left for the last. So whether a trace fits
    is not quite monotone in the capacity.
    """
    sizes = [size * MIB for size in (16, 20, 8, 10, 14)]
    events = [(ALLOCATE, 0), (FREE, 0), (ALLOCATE, 1), (FREE, 1)]
    events += [(ALLOCATE, 2), (ALLOCATE, 3), (ALLOCATE, 4)]
    assert replay(events, sizes, 34 * MIB).fits
    assert not replay(events, sizes, 36 * MIB).fits


def test_an_empty_trace_fits_anywhere() -> None:
    assert replay([], [], 0) == ReplayResult(True, 0, 0, 0, -1)
    assert replay([(ALLOCATE, 0), (FREE, 0)], [0], 0) == ReplayResult(True, 0, 0, 0, -1)


@pytest.mark.parametrize(
    "events",
    [
        [(FREE, 0)],
        [(ALLOCATE, 0), (ALLOCATE, 0)],
        [(ALLOCATE, 0), (FREE, 0), (FREE, 0)],
        [(2, 0)],
    ],
)
def test_an_impossible_trace_is_refused(events: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="not possible"):
        replay(events, [512])


@settings(deadline=None)
@given(STEPS, st.integers(0, 200))
def test_the_peaks_of_a_prefix_are_never_above_those_of_the_whole(
    steps: list[tuple[int, int]], cut: int
) -> None:
    events, sizes = trace_of(steps)
    part, whole = replay(events[:cut], sizes), replay(events, sizes)
    assert part.peak_allocated_bytes <= whole.peak_allocated_bytes
    assert part.peak_reserved_bytes <= whole.peak_reserved_bytes
    at_peak = replay(events[: whole.peak_event_index + 1], sizes)
    assert at_peak.peak_allocated_bytes == whole.peak_allocated_bytes


@settings(deadline=None)
@given(STEPS)
def test_a_capacity_of_the_unbounded_peak_changes_nothing(steps: list[tuple[int, int]]) -> None:
    events, sizes = trace_of(steps)
    unbounded = replay(events, sizes)
    assert replay(events, sizes, unbounded.peak_reserved_bytes) == unbounded


@settings(deadline=None)
@given(STEPS, st.integers(0, 200 * MIB))
def test_a_replay_only_fails_after_freeing_everything_unused(
    steps: list[tuple[int, int]], capacity: int
) -> None:
    events, sizes = trace_of(steps)
    result = replay(events, sizes, capacity)
    assert result.peak_reserved_bytes <= capacity
    if result.fits:
        assert (result.failed_event_index, result.failed_request_bytes) == (None, None)
    else:
        assert result.failed_event_index is not None
        assert events[result.failed_event_index][0] == ALLOCATE
        assert sizes[events[result.failed_event_index][1]] == result.failed_request_bytes
        assert result.retries >= 1
        assert replay(events[: result.failed_event_index], sizes, capacity).fits


@settings(deadline=None)
@given(
    STEPS,
    st.integers(0, 200 * MIB),
    st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:20"]),
)
def test_a_batch_is_predicted_to_fit_if_its_replay_fits_into_memory(
    steps: list[tuple[int, int]], usable: int, setting: str
) -> None:
    events, sizes = trace_of(steps)
    whole = [Category.ACTIVATIONS] * len(sizes)
    trace = Trace(1, events, sizes, whole, last_step=len(events))
    options = AllocatorOptions.parse(setting)
    trial = predict_memory(GpuFacts("a GPU", 2**30, usable), trace, options)
    within = replay(events, sizes, usable, options)
    assert trial.fits == within.fits
    assert trial.alloc_retries == (within.retries if within.fits else None)
    need = within if within.fits else replay(events, sizes, None, options)
    assert trial.peak_reserved_bytes == need.peak_reserved_bytes
    assert trial.peak_allocated_bytes == need.peak_allocated_bytes
    assert sum(trial.breakdown.values()) == need.peak_allocated_bytes


def test_a_step_that_fits_twice_may_fail_later() -> None:
    """Each step leaves blocks in different places, until one finds no room."""
    sizes = [size * MIB for size in (11, 11, 11, 19)]
    a, b, c, d = range(4)
    step = [(ALLOCATE, tensor) for tensor in (a, b, c)]
    step += [(FREE, a), (ALLOCATE, d), (FREE, c), (FREE, b), (FREE, d)]
    assert replay(2 * step, sizes, 55 * MIB).fits
    assert not Trace(1, step, sizes, last_step=0).replay(55 * MIB).fits


@settings(deadline=None)
@given(STEPS, STEPS, st.floats(0.5, 1.0), st.sampled_from(["", "expandable_segments:True"]))
def test_what_fits_under_a_limit_fits_step_after_step(
    model: list[tuple[int, int]], work: list[tuple[int, int]], share: float, setting: str
) -> None:
    kept, kept_sizes = trace_of(model)
    made, made_sizes = trace_of(work)
    step = [(kind, tensor + len(kept_sizes)) for kind, tensor in made]
    freed = {tensor for kind, tensor in step if kind == FREE}
    step += [(FREE, tensor) for kind, tensor in step if kind == ALLOCATE and tensor not in freed]
    sizes = kept_sizes + made_sizes
    trace = Trace(1, kept + step, sizes, last_step=len(kept))
    options = AllocatorOptions.parse(setting)
    limit = int(trace.replay(None, options).peak_reserved_bytes * share)
    assert trace.replay(limit, options).fits == replay(kept + 17 * step, sizes, limit, options).fits


class Counted(list[tuple[int, int]]):
    """Events that count how often they are iterated."""

    rounds = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.rounds += 1
        return super().__iter__()


def test_a_step_is_replayed_once_by_default() -> None:
    again = Counted([(ALLOCATE, 1), (FREE, 1), (ALLOCATE, 2), (FREE, 2)])
    sizes = [2 * MIB, 30 * MIB, 512]  # the last two each free the other's segment
    once = replay([(ALLOCATE, 0)], sizes, 51 * MIB, again=again)
    assert (once.peak_event_index, once.retries, again.rounds) == (1, 1, 1)
    thrice = replay([(ALLOCATE, 0)], sizes, 51 * MIB, again=again, times=3)
    assert (thrice.peak_event_index, thrice.retries, again.rounds) == (1, 5, 4)


def test_a_step_is_repeated_until_its_blocks_stay_in_place() -> None:
    step = Counted([(ALLOCATE, 0), (FREE, 0)])
    replay([], [4 * MIB], again=step, times=10)
    assert step.rounds == 2  # the first leaves a free segment behind
    settled = Counted(step)
    replay(list(step), [4 * MIB], again=settled, times=10)
    assert settled.rounds == 1


def test_nothing_is_compared_after_the_last_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    monkeypatch.setattr(CachingAllocator, "layout", compared.append)
    step = [(ALLOCATE, 0), (FREE, 0)]
    replay(step, [512], again=step)
    replay(step, [512], times=5)
    assert compared == []


def test_tensors_are_replayed_in_their_own_streams() -> None:
    events = [(ALLOCATE, 0), (FREE, 0), (ALLOCATE, 1)]
    sizes = [20 * MIB, 20 * MIB]
    assert replay(events, sizes).peak_reserved_bytes == 20 * MIB
    assert replay(events, sizes, streams=[0, 2]).peak_reserved_bytes == 40 * MIB
    assert replay(events, sizes, streams=[2, 2]).peak_reserved_bytes == 20 * MIB


def test_events_are_pairs_of_zero_or_one_and_a_tensor() -> None:
    result = replay([(0, 0), (1, 0), (0, 1)], [20 * MIB, 18 * MIB])
    assert (result.peak_allocated_bytes, result.peak_event_index) == (20 * MIB, 0)


def test_a_step_that_changes_nothing_is_not_repeated_forever() -> None:
    step = [(ALLOCATE, 0), (FREE, 0)]
    assert replay(step, [4 * MIB], 20 * MIB, again=step, times=10**12).fits
