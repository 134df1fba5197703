"""The allocator model follows the rules of PyTorch's caching allocator."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.allocator.caching import (
    ALLOCATE,
    FREE,
    MAX_STREAMS,
    NO_BLOCK,
    AllocatorOutOfMemory,
    CachingAllocator,
)

KIB = 1024
MIB = 1024 * KIB


# --- The rules, worked out by hand -----------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),  # more than 1 MiB is left over: split
        (11 * MIB, 12 * MIB, 12 * MIB),  # exactly 1 MiB: the whole block
    ],
)
def test_a_first_request_is_rounded_and_gets_a_segment_of_its_class(
    requested: int, allocated: int, reserved: int
) -> None:
    allocator = CachingAllocator()
    allocator.allocate(requested)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (allocated, reserved)


def test_a_small_block_is_split_down_to_the_last_512_bytes() -> None:
    allocator = CachingAllocator()
    for size in (MIB, MIB - 512, 512):
        allocator.allocate(size)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (2 * MIB, 2 * MIB)
    allocator.allocate(1)
    assert allocator.reserved_bytes == 4 * MIB


def test_a_large_block_is_not_split_for_a_remainder_of_1_mib_or_less() -> None:
    allocator = CachingAllocator()
    first = allocator.allocate(9 * MIB)
    allocator.allocate(9 * MIB)  # leaves 2 MiB of the 20
    allocator.allocate(MIB + 512)  # would leave 1 MiB - 512: takes all 2 MiB
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (20 * MIB, 20 * MIB)
    allocator.free(first)
    allocator.allocate(8 * MIB)  # would leave exactly 1 MiB: takes all 9
    assert allocator.allocated_bytes == 20 * MIB


def test_small_requests_never_use_a_large_segment() -> None:
    allocator = CachingAllocator()
    allocator.allocate(2 * MIB)
    allocator.allocate(512)
    assert allocator.reserved_bytes == 22 * MIB


def test_the_smallest_sufficient_block_is_taken_then_the_lowest_address() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size) for size in (40 * MIB, 12 * MIB, 30 * MIB, 12 * MIB)]
    for block in blocks:
        allocator.free(block)
    assert allocator.allocate(12 * MIB) == blocks[1]
    assert allocator.allocate(12 * MIB) == blocks[3]
    assert allocator.allocate(12 * MIB) == blocks[2]
    assert allocator.reserved_bytes == 94 * MIB


def test_neighbours_join_when_freed_in_any_order() -> None:
    for order in ((0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)):
        allocator = CachingAllocator()
        blocks = [allocator.allocate(6 * MIB) for _ in range(3)]
        for index in order:
            allocator.free(blocks[index])
        allocator.allocate(20 * MIB)
        assert allocator.reserved_bytes == 20 * MIB


def test_blocks_of_different_segments_never_join() -> None:
    allocator = CachingAllocator()
    for block in [allocator.allocate(10 * MIB), allocator.allocate(10 * MIB)]:
        allocator.free(block)
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 40 * MIB


def test_unused_segments_are_freed_before_a_request_fails() -> None:
    allocator = CachingAllocator(40 * MIB)
    used = allocator.allocate(10 * MIB)
    allocator.free(allocator.allocate(20 * MIB))
    allocator.allocate(30 * MIB)
    assert (allocator.reserved_bytes, allocator.retries) == (40 * MIB, 1)
    with pytest.raises(AllocatorOutOfMemory) as caught:
        allocator.allocate(1000)
    assert caught.value.requested_bytes == 1000
    assert (caught.value.allocated_bytes, caught.value.reserved_bytes) == (40 * MIB, 40 * MIB)
    assert allocator.retries == 2
    allocator.free(used)
    allocator.allocate(1000)
    assert (allocator.reserved_bytes, allocator.retries) == (32 * MIB, 3)


def test_a_segment_partly_in_use_is_not_freed() -> None:
    allocator = CachingAllocator(30 * MIB)
    allocator.free(allocator.allocate(9 * MIB))
    allocator.allocate(2 * MIB)
    with pytest.raises(AllocatorOutOfMemory):
        allocator.allocate(19 * MIB)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (2 * MIB, 20 * MIB)


def test_small_segments_are_freed_to_make_room_too() -> None:
    allocator = CachingAllocator(12 * MIB)
    allocator.free(allocator.allocate(512))
    allocator.allocate(12 * MIB)
    assert (allocator.reserved_bytes, allocator.peak_reserved_bytes) == (12 * MIB, 12 * MIB)


def test_a_capacity_can_be_filled_to_the_byte() -> None:
    CachingAllocator(2 * MIB).allocate(1)
    with pytest.raises(AllocatorOutOfMemory):
        CachingAllocator(2 * MIB - 1).allocate(1)


def test_a_retry_frees_unused_segments_of_other_streams() -> None:
    allocator = CachingAllocator(42 * MIB)
    allocator.free(allocator.allocate(20 * MIB, stream=2))
    allocator.allocate(512, stream=1)
    assert allocator.reserved_bytes == 22 * MIB
    allocator.allocate(40 * MIB)
    assert (allocator.reserved_bytes, allocator.retries) == (42 * MIB, 1)
    with pytest.raises(AllocatorOutOfMemory):
        allocator.allocate(512, stream=3)
    assert allocator.reserved_bytes == 42 * MIB


def test_streams_have_separate_memory_and_share_one_capacity() -> None:
    allocator = CachingAllocator(44 * MIB)
    allocator.allocate(2 * MIB, stream=3)
    allocator.allocate(512, stream=3)
    allocator.allocate(2 * MIB, stream=2)
    assert allocator.reserved_bytes == 42 * MIB
    allocator.allocate(2 * MIB, stream=3)
    allocator.allocate(2 * MIB, stream=2)
    allocator.allocate(512, stream=3)
    assert (allocator.reserved_bytes, allocator.retries) == (42 * MIB, 0)
    allocator.allocate(512, stream=2)
    assert allocator.reserved_bytes == 44 * MIB
    with pytest.raises(AllocatorOutOfMemory):
        allocator.allocate(512)


@pytest.mark.parametrize("stream", [0, 1, 2, 3, 6, MAX_STREAMS - 1])
def test_freed_memory_serves_its_own_stream_and_size_class(stream: int) -> None:
    allocator = CachingAllocator()
    sizes = (MIB, MIB + 512)
    blocks = [allocator.allocate(size, stream) for size in sizes]
    # The leading byte of a 64-bit address identifies the pool.
    assert [block >> 56 for block in blocks] == [2 * stream, 2 * stream + 1]
    for block in blocks:
        allocator.free(block)
    assert [allocator.allocate(size, stream) for size in sizes] == blocks
    assert allocator.reserved_bytes == 22 * MIB
    other = [allocator.allocate(size, stream + 1 if stream < 6 else 1) for size in sizes]
    assert not set(other) & set(blocks)
    assert allocator.reserved_bytes == 44 * MIB


def test_a_request_without_a_stream_uses_the_first() -> None:
    allocator = CachingAllocator()
    block = allocator.allocate(512)
    allocator.free(block)
    assert allocator.allocate(512, stream=0) == block


def test_a_new_allocator_is_empty() -> None:
    allocator = CachingAllocator()
    assert (allocator.allocated_bytes, allocator.peak_allocated_bytes) == (0, 0)
    assert (allocator.reserved_bytes, allocator.peak_reserved_bytes) == (0, 0)
    assert allocator.retries == 0
    assert allocator.layout() == ({}, {0: {}, 1: {}})


def test_the_layout_lists_every_used_and_every_free_block() -> None:
    allocator = CachingAllocator()
    small, large = allocator.allocate(512), allocator.allocate(2 * MIB)
    assert allocator.layout() == (
        {small: 512, large: 2 * MIB},
        {0: {small + 512: 2 * MIB - 512}, 1: {large + 2 * MIB: 18 * MIB}},
    )
    allocator.free(large)
    assert allocator.layout() == (
        {small: 512},
        {0: {small + 512: 2 * MIB - 512}, 1: {large: 20 * MIB}},
    )


def test_the_peaks_stay_when_memory_is_freed() -> None:
    allocator = CachingAllocator(30 * MIB)
    allocator.free(allocator.allocate(24 * MIB))
    allocator.allocate(10 * MIB)  # of the 24
    assert (allocator.allocated_bytes, allocator.peak_allocated_bytes) == (10 * MIB, 24 * MIB)
    small = CachingAllocator(30 * MIB)
    small.free(small.allocate(24 * MIB))
    small.allocate(26 * MIB)
    small.allocate(MIB)
    assert (small.reserved_bytes, small.peak_reserved_bytes) == (28 * MIB, 28 * MIB)
    assert small.peak_allocated_bytes == 27 * MIB


def test_a_request_of_zero_bytes_takes_no_memory() -> None:
    allocator = CachingAllocator(0)
    handle = allocator.allocate(0)
    assert handle == NO_BLOCK
    allocator.free(handle)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 0)


def test_misuse_is_refused() -> None:
    allocator = CachingAllocator()
    block = allocator.allocate(1)
    allocator.free(block)
    with pytest.raises(ValueError, match="no block in use"):
        allocator.free(block)
    with pytest.raises(ValueError, match="negative"):
        allocator.allocate(-1)
    with pytest.raises(ValueError, match="negative"):
        CachingAllocator(-1)


# --- Against a slow model that follows the rules literally -----------------------------------


@dataclass
class NaiveBlock:
    size: int
    used: bool


@dataclass
class NaiveSegment:
    small: bool
    blocks: list[NaiveBlock]


@dataclass
class NaiveAllocator:
    """Segments as plain lists of blocks in address order, searched from end to end."""

    capacity: int | None
    segments: list[NaiveSegment] = field(default_factory=list)
    retries: int = 0

    def reserved(self) -> int:
        return sum(block.size for segment in self.segments for block in segment.blocks)

    def allocated(self) -> int:
        return sum(b.size for segment in self.segments for b in segment.blocks if b.used)

    def allocate(self, size: int) -> NaiveBlock | None:
        size = max(1, -(-size // 512)) * 512
        small = size <= MIB
        found = self.best(size, small)
        if found is None:
            if small:
                wanted = 2 * MIB
            elif size < 10 * MIB:
                wanted = 20 * MIB
            else:
                wanted = -(-size // (2 * MIB)) * 2 * MIB
            if self.capacity is not None and self.reserved() + wanted > self.capacity:
                self.retries += 1
                self.segments = [s for s in self.segments if any(b.used for b in s.blocks)]
                if self.reserved() + wanted > self.capacity:
                    return None
            self.segments.append(NaiveSegment(small, [NaiveBlock(wanted, used=False)]))
            found = self.best(size, small)
        assert found is not None
        segment, block = found
        left = block.size - size
        if left >= 512 if small else left > MIB:
            block.size = size
            segment.blocks.insert(segment.blocks.index(block) + 1, NaiveBlock(left, used=False))
        block.used = True
        return block

    def best(self, size: int, small: bool) -> tuple[NaiveSegment, NaiveBlock] | None:
        free = [
            (segment, block)
            for segment in self.segments
            if segment.small == small
            for block in segment.blocks
            if not block.used and block.size >= size
        ]
        return min(free, key=lambda pair: pair[1].size, default=None)

    def free(self, freed: NaiveBlock) -> None:
        freed.used = False
        for segment in self.segments:
            joined: list[NaiveBlock] = []
            for block in segment.blocks:
                if joined and not joined[-1].used and not block.used:
                    joined[-1].size += block.size
                else:
                    joined.append(block)
            segment.blocks = joined


SIZES = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, 3 * MIB),
    st.integers(1, 64 * MIB),
    st.sampled_from([512, MIB - 1, MIB, MIB + 1, 2 * MIB, 10 * MIB - 512, 10 * MIB, 20 * MIB]),
)
# Each step allocates a size, or frees one of the live blocks (chosen by the number, modulo). Long
# lists are requested explicitly, since hypothesis prefers short ones.
STEP = st.tuples(st.sampled_from([ALLOCATE, ALLOCATE, ALLOCATE, FREE, FREE]), SIZES)
STEPS = st.one_of(st.lists(STEP), st.lists(STEP, min_size=40, max_size=120))
CAPACITIES = st.one_of(st.none(), st.integers(0, 200 * MIB))


@given(STEPS, CAPACITIES)
def test_the_allocator_agrees_with_the_slow_model(
    steps: list[tuple[int, int]], capacity: int | None
) -> None:
    fast, slow = CachingAllocator(capacity), NaiveAllocator(capacity)
    live: list[tuple[int, NaiveBlock]] = []
    peak_allocated = peak_reserved = 0
    for kind, number in steps:
        if kind == ALLOCATE:
            block = slow.allocate(number)
            if block is None:
                with pytest.raises(AllocatorOutOfMemory):
                    fast.allocate(number)
            else:
                live.append((fast.allocate(number), block))
        elif live:
            handle, block = live.pop(number % len(live))
            fast.free(handle)
            slow.free(block)
        peak_allocated = max(peak_allocated, slow.allocated())
        peak_reserved = max(peak_reserved, slow.reserved())
        assert fast.allocated_bytes == slow.allocated()
        assert fast.reserved_bytes == slow.reserved()
        assert fast.retries == slow.retries
    assert fast.peak_allocated_bytes == peak_allocated
    assert fast.peak_reserved_bytes == peak_reserved


@settings(deadline=None)
@given(STEPS, CAPACITIES)
def test_used_blocks_never_overlap_and_stay_within_reserved_memory_and_capacity(
    steps: list[tuple[int, int]], capacity: int | None
) -> None:
    allocator = CachingAllocator(capacity)
    live: dict[int, int] = {}
    for kind, number in steps:
        before = allocator.allocated_bytes
        if kind == ALLOCATE:
            try:
                handle = allocator.allocate(number)
            except AllocatorOutOfMemory:
                assert allocator.allocated_bytes == before
            else:
                live[handle] = allocator.allocated_bytes - before
                assert live[handle] >= number
        elif live:
            handle = list(live)[number % len(live)]
            allocator.free(handle)
            assert before - allocator.allocated_bytes == live.pop(handle)
        ordered = sorted(live.items())
        assert all(a + size <= b for (a, size), (b, _) in pairwise(ordered))
        assert allocator.allocated_bytes == sum(live.values()) <= allocator.reserved_bytes
        assert capacity is None or allocator.reserved_bytes <= capacity


@settings(deadline=None)
@given(st.lists(SIZES, max_size=30), st.randoms(use_true_random=False))
def test_once_everything_is_freed_every_segment_can_be_freed(
    sizes: list[int], random: Random
) -> None:
    everything = 10_000 * MIB
    allocator = CachingAllocator(everything)
    handles = [allocator.allocate(size) for size in sizes]
    random.shuffle(handles)
    for handle in handles:
        allocator.free(handle)
    assert allocator.allocated_bytes == 0
    allocator.allocate(everything)
    assert allocator.reserved_bytes == everything
