"""Two or three traces give every batch size; a trace's events give its peak and replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.allocator.caching import ALLOCATE, FREE
from engine.tracing.column_sums import ColumnSum
from engine.tracing.every_batch import AffineTrace, NotAffine, QuadraticTrace, one_sample
from engine.tracing.trace import (
    MAX_STEPS,
    Category,
    NeedsTwoSamples,
    Operation,
    Trace,
    batch_norm_refuses,
    on_threads,
)

MIB = 2**20
COEFFICIENTS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 10**4)), min_size=1
)


COEFFICIENTS_OF_BLOCKS = [(7, 3, 0)] * 3


def product(size: int) -> Operation:
    """A matrix product whose work and rows grow with a size."""
    return Operation("aten.mm", "float32", 2 * size, size + 1, "forward", (1, size, 8, 3), True)


def at(batch_size: int, coefficients: list[tuple[int, int, int]], square: bool = False) -> Trace:
    """A trace whose tensors take ``a + b·batch`` bytes, plus ``c·batch²`` if given."""
    sizes = [
        base + slope * batch_size + square * curvature * batch_size**2
        for base, slope, curvature in coefficients
    ]
    return Trace(
        batch_size=batch_size,
        events=[(ALLOCATE, tensor) for tensor in range(len(sizes))],
        sizes=sizes,
        categories=[Category.ACTIVATIONS] * len(sizes),
        operations=[product(size) for size in sizes],
    )


def assert_alike(found: Trace, expected: Trace) -> None:
    assert found.batch_size == expected.batch_size
    assert found.sizes == expected.sizes
    assert found.operations == expected.operations
    assert found.events == expected.events


@given(
    coefficients=COEFFICIENTS,
    low=st.integers(1, 100),
    apart=st.integers(1, 100),
    batch_size=st.integers(1, 65_536),
)
def test_two_traces_give_every_batch_size(
    coefficients: list[tuple[int, int, int]], low: int, apart: int, batch_size: int
) -> None:
    affine = AffineTrace(at(low, coefficients), at(low + apart, coefficients))
    assert_alike(affine.at(batch_size), at(batch_size, coefficients))


@given(coefficients=COEFFICIENTS, batch_size=st.integers(2, 1000), more=st.integers(-5, 5))
def test_a_trace_knows_the_sizes_of_batches_nearby(
    coefficients: list[tuple[int, int, int]], batch_size: int, more: int
) -> None:
    traces = AffineTrace(at(2, coefficients), at(3, coefficients))
    nearby = traces.at(batch_size).nearby(more)
    if batch_size + more < 2:
        assert nearby is None
    else:
        assert nearby is not None
        assert nearby.batch_size == batch_size + more
        assert nearby.sizes == at(batch_size + more, coefficients).sizes


def test_a_batch_traced_by_itself_knows_none_nearby() -> None:
    assert at(4, [(1, 1, 0)]).nearby(1) is None


@given(
    batch_size=st.integers(2, 64), more=st.integers(-3, 3), threads=st.sampled_from([2**14, 2**18])
)
def test_scratch_of_a_sum_stays_as_it_is_nearby(batch_size: int, more: int, threads: int) -> None:
    def traced(size: int) -> Trace:
        sums = {0: ColumnSum(1024 * size, 768, 4, 4, 4, 2**18)}
        made = at(size, [(0, 100, 0)])
        return replace(made, sizes=[sums[0].scratch_bytes], column_sums=sums)

    found = on_threads(AffineTrace(traced(2), traced(3)).at(batch_size), threads)
    nearby = found.nearby(more)
    assert nearby is None or nearby.sizes == found.sizes


@given(coefficients=COEFFICIENTS, first=st.integers(1, 100), batch_size=st.integers(1, 65_536))
def test_three_traces_give_every_size_of_a_step_that_compares_samples(
    coefficients: list[tuple[int, int, int]], first: int, batch_size: int
) -> None:
    three = [at(first + number, coefficients, square=True) for number in range(3)]
    quadratic = QuadraticTrace(*three)
    assert_alike(quadratic.at(batch_size), at(batch_size, coefficients, square=True))


def test_two_traces_are_extended_by_a_line() -> None:
    low, high = at(4, [(100, 10, 0)]), at(10, [(100, 10, 0)])
    affine = AffineTrace(low, high)
    for batch_size, size in ((1, 110), (4, 140), (7, 170), (10, 200), (64, 740)):
        found = affine.at(batch_size)
        assert found.sizes == [size]
        assert found.operations == [product(size)]


def test_equal_operations_are_one_and_elements_loaded_one_by_one_stay_apart() -> None:
    traces = at(2, COEFFICIENTS_OF_BLOCKS), at(3, COEFFICIENTS_OF_BLOCKS)
    for trace in traces:
        trace.operations[1] = replace(trace.operations[1], unrolled=True)
    first, unrolled, third = AffineTrace(*traces).at(50).operations
    assert [first, unrolled, third] == at(50, COEFFICIENTS_OF_BLOCKS).operations
    assert first is third
    assert [one.unrolled for one in (first, unrolled, third)] == [False, True, False]


def test_three_traces_are_extended_by_a_parabola() -> None:
    three = [at(size, [(100, 10, 3)], square=True) for size in (2, 3, 4)]
    assert [trace.sizes for trace in three] == [[132], [157], [188]]
    quadratic = QuadraticTrace(*three)
    for batch_size, size in ((1, 113), (2, 132), (3, 157), (4, 188), (5, 225), (20, 1500)):
        found = quadratic.at(batch_size)
        assert found.sizes == [size]
        assert found.operations == [product(size)]


OTHERS: list[Callable[[Trace], Trace]] = [
    lambda trace: replace(trace, events=[*trace.events, (FREE, 0)]),
    lambda trace: replace(trace, categories=[Category.GRADIENTS]),
    lambda trace: replace(trace, operations=[]),
    lambda trace: replace(trace, operations=[replace(trace.operations[0], name="aten.bmm")]),
    lambda trace: replace(trace, operations=[replace(trace.operations[0], phase="backward")]),
    lambda trace: replace(trace, operations=[replace(trace.operations[0], shape=(1, 2))]),
]


@pytest.mark.parametrize("other", OTHERS)
def test_traces_of_different_steps_give_no_other_batch_size(
    other: Callable[[Trace], Trace],
) -> None:
    first, second, third = (at(size, [(1, 2, 3)]) for size in (2, 3, 4))
    with pytest.raises(NotAffine, match="batch 2 and 3"):
        AffineTrace(first, other(second))
    with pytest.raises(NotAffine, match="batch 2 and 3"):
        QuadraticTrace(first, other(second), other(third))
    with pytest.raises(NotAffine, match="batch 3 and 4"):
        QuadraticTrace(first, second, other(third))


def test_tensors_and_operations_without_a_counterpart_are_refused() -> None:
    three = [at(size, [(1, 2, 3), (4, 5, 6)]) for size in (2, 3, 4)]
    for trace in three[1:]:
        trace.sizes = trace.sizes[:1]
    with pytest.raises(ValueError, match="shorter"):
        AffineTrace(*three[:2]).at(5)
    with pytest.raises(ValueError, match="shorter"):
        QuadraticTrace(*three).at(5)


def test_everything_except_sizes_and_work_comes_from_the_first_trace() -> None:
    three = [at(size, [(1, 2, 3)]) for size in (2, 3, 4)]
    for trace, dtype in zip(three, ("float32", "bfloat16", "float16"), strict=True):
        trace.operations = [replace(trace.operations[0], dtype=dtype)]
        trace.modules = [dtype]
    for every in (AffineTrace(*three[:2]), QuadraticTrace(*three)):
        found = every.at(10)
        assert found.operations == [product(21)]
        assert (found.batch_size, found.modules) == (10, ["float32"])


@pytest.mark.parametrize(
    ("error", "refuses"),
    [
        (ValueError("Expected more than 1 value per channel when training"), True),
        (ValueError("another"), False),
        (RuntimeError("Expected more than 1 value per channel when training"), False),
    ],
)
def test_batch_norms_error_is_recognized_by_its_message(error: Exception, refuses: bool) -> None:
    assert batch_norm_refuses(error) is refuses


def step(*events: tuple[int, int], last_step: int = 0) -> Trace:
    return Trace(
        batch_size=1,
        events=list(events),
        sizes=[4 * MIB, 4 * MIB, 2 * MIB],
        categories=[Category.PARAMETERS, Category.ACTIVATIONS, Category.TEMPORARIES],
        last_step=last_step,
    )


def test_the_peak_is_the_first_moment_of_highest_memory() -> None:
    trace = step((ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1), (ALLOCATE, 2), (ALLOCATE, 1))
    peak, parts = trace.peak_by_category()
    assert peak == 10 * MIB == sum(parts.values())
    assert (parts["parameters"], parts["activations"], parts["temporaries"]) == (
        4 * MIB,
        4 * MIB,
        2 * MIB,
    )
    assert step((ALLOCATE, 0), (ALLOCATE, 1)).peak_by_category()[0] == 8 * MIB
    first = step((ALLOCATE, 0), (ALLOCATE, 1), (FREE, 0)).peak_by_category()[1]
    assert (first["parameters"], first["activations"]) == (4 * MIB, 4 * MIB)
    again = step((ALLOCATE, 0), (ALLOCATE, 2), (FREE, 2), (FREE, 0), (ALLOCATE, 1), (ALLOCATE, 2))
    assert again.peak_by_category()[1]["parameters"] == 4 * MIB
    nothing = Trace(1, [(ALLOCATE, 0), (FREE, 0)], [0], [Category.INPUTS])
    assert nothing.peak_by_category() == (0, dict.fromkeys((c.value for c in Category), 0))
    assert Trace(1).peak_by_category() == (0, dict.fromkeys((c.value for c in Category), 0))


def test_a_step_repeats_if_it_frees_what_it_allocates() -> None:
    whole = ((ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1))
    assert step(*whole, last_step=1).repeatable
    assert not step(*whole, last_step=0).repeatable
    assert not step(*whole, (FREE, 0), last_step=1).repeatable


def test_a_step_repeats_from_its_first_event_by_default() -> None:
    assert Trace(1, [(ALLOCATE, 0), (FREE, 0)], [512]).repeatable
    assert not Trace(1, [(ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1)], [512, 512]).repeatable


def test_a_step_under_a_limit_is_repeated_sixteen_times() -> None:
    """No step tried so far failed after the eleventh repetition."""
    sizes = [30 * MIB, 512]  # each frees the other's segment
    trace = Trace(1, [(ALLOCATE, 0), (FREE, 0), (ALLOCATE, 1), (FREE, 1)], sizes)
    assert trace.replay(31 * MIB).retries == 1 + 16 * 2
    assert trace.replay().peak_reserved_bytes == 32 * MIB


def test_a_repeating_step_is_replayed_until_it_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def replay(_events: object, *args: object) -> None:
        again, times = args[-2:]
        assert isinstance(again, list)
        assert isinstance(times, int)
        asked.append((len(again), times))

    monkeypatch.setattr("engine.tracing.trace.replay", replay)
    repeatable = step((ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1), last_step=1)
    repeatable.replay()
    repeatable.replay(2**30)
    step((ALLOCATE, 0), (ALLOCATE, 1)).replay(2**30)
    assert asked == [(2, 1), (2, MAX_STEPS), (0, MAX_STEPS)]


def test_batch_one_has_a_stand_in_where_pytorch_refuses_it() -> None:
    two = at(2, [(1, 2, 3)])

    def refuse(_batch_size: int) -> Trace:
        raise NeedsTwoSamples

    assert one_sample(lambda size: at(size, [(1, 2, 3)]), two).sizes == [3]
    stand_in = one_sample(refuse, two)
    assert (stand_in.batch_size, stand_in.sizes, stand_in.stands_in) == (1, [5], True)
    two.check_runnable()
    with pytest.raises(NeedsTwoSamples, match="needs more than one value"):
        stand_in.check_runnable()


def test_what_is_held_between_steps_was_made_before_the_last_and_not_freed() -> None:
    trace = Trace(
        2,
        events=[(ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1), (ALLOCATE, 2), (ALLOCATE, 3)],
        sizes=[512, 1024, 2048, 4096],
        categories=[
            Category.PARAMETERS,
            Category.OPTIMIZER_STATE,
            Category.OPTIMIZER_STATE,
            Category.ACTIVATIONS,
        ],
        last_step=4,
    )
    held = {category: size for category, size in trace.held_between_steps().items() if size}
    assert held == {Category.PARAMETERS: 512, Category.OPTIMIZER_STATE: 2048}
