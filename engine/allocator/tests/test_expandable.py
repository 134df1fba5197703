"""Segments that grow by pages reserve the same memory as PyTorch's expandable segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.allocator.caching import ALLOCATE, FREE, AllocatorOutOfMemory, CachingAllocator, replay
from engine.allocator.options import AllocatorOptions
from engine.allocator.tests.test_allocator import CAPACITIES, SIZES, STEPS
from engine.allocator.tests.test_allocator_options import agree

MIB = 2**20
EXPANDABLE = AllocatorOptions(expandable_segments=True)


def test_a_segment_grows_by_pages_and_wastes_at_most_one() -> None:
    grown = CachingAllocator(options=EXPANDABLE)
    grown.allocate(30 * MIB)
    assert (grown.allocated_bytes, grown.reserved_bytes) == (30 * MIB, 40 * MIB)
    grown.allocate(30 * MIB)  # 10 of them in the page already started
    assert (grown.allocated_bytes, grown.reserved_bytes) == (60 * MIB, 60 * MIB)
    grown.allocate(512)
    assert grown.reserved_bytes == 62 * MIB


def test_a_freed_end_grows_where_the_default_needs_another_segment() -> None:
    sizes = [64 * MIB, 96 * MIB]
    events = [(ALLOCATE, 0), (FREE, 0), (ALLOCATE, 1)]
    assert replay(events, sizes).peak_reserved_bytes == 160 * MIB
    assert replay(events, sizes, None, EXPANDABLE).peak_reserved_bytes == 100 * MIB


def test_a_large_block_is_split_down_to_the_last_512_bytes() -> None:
    grown = CachingAllocator(options=EXPANDABLE)
    grown.allocate(20 * MIB - 512)
    grown.allocate(MIB + 512)
    assert grown.allocated_bytes == 21 * MIB


def test_empty_pages_are_unmapped_before_a_request_fails() -> None:
    grown = CachingAllocator(100 * MIB, EXPANDABLE)
    blocks = [grown.allocate(30 * MIB) for _ in range(3)]  # 90 MiB in 5 pages
    grown.free(blocks[0])
    grown.free(blocks[1])
    last = grown.allocate(70 * MIB)  # 60 and 10 are free, but apart: three pages move to the end
    assert (grown.reserved_bytes, grown.retries) == (100 * MIB, 1)
    grown.free(last)
    with pytest.raises(AllocatorOutOfMemory):
        grown.allocate(90 * MIB)


@dataclass
class NaivePage:
    """A run of addresses that is free, used or unmapped."""

    start: int
    size: int
    state: str


@dataclass
class NaiveRange:
    """One segment's addresses as a plain list of runs, the last of them without an end."""

    page: int
    runs: list[NaivePage] = field(default_factory=lambda: [NaivePage(0, 2**50, "unmapped")])

    def mapped(self) -> int:
        return sum(run.size for run in self.runs if run.state != "unmapped")

    def used(self) -> int:
        return sum(run.size for run in self.runs if run.state == "used")

    def take(self, size: int, max_split: int | None) -> NaivePage | None:
        free = [(run.size, run.start, i) for i, run in enumerate(self.runs) if run.state == "free"]
        order = [(size, i) for size, _, i in sorted(free)]
        order = [(have, i) for have, i in order if have >= size]
        if not order:
            return None
        reach = [have + self.unmapped_size(i + 1) for have, i in order]
        best = 0
        while best + 1 < len(order) and reach[best + 1] < reach[best]:
            best += 1
        have, index = order[best]
        if max_split is not None:
            too_large = have >= max_split if size < max_split else have >= size + 20 * MIB
            if too_large:
                return None
        return self.cut(index, size)

    def unmapped_size(self, index: int) -> int:
        if index < len(self.runs) and self.runs[index].state == "unmapped":
            return self.runs[index].size
        return 0

    def grow(self, size: int, room: int | None) -> NaivePage | None:
        start = self.runs[self.lowest(size)].start
        while True:
            index = next(i for i, run in enumerate(self.runs) if run.start == start)
            have = self.runs[index].size if self.runs[index].state == "free" else 0
            if have >= size:
                return self.cut(index, size)
            hole = index + (have > 0)
            missing = min(size - have, self.runs[hole].size)
            mapped = -(-missing // self.page) * self.page
            if room is not None and mapped > room:
                return None
            room = None if room is None else room - mapped
            run = self.cut(hole, mapped)
            run.state = "free"
            self.join()

    def lowest(self, size: int) -> int:
        for index, run in enumerate(self.runs):
            if run.state == "unmapped":
                first = index - 1 if index and self.runs[index - 1].state == "free" else index
                space = 0
                for other in self.runs[first:]:
                    if other.state == "used":
                        break
                    space += other.size
                if space >= size:
                    return first
        raise AssertionError("the last run has no end")

    def cut(self, index: int, size: int) -> NaivePage:
        run = self.runs[index]
        if run.size > size:
            rest = NaivePage(run.start + size, run.size - size, run.state)
            self.runs.insert(index + 1, rest)
            run.size = size
        run.state = "used"
        return run

    def free(self, run: NaivePage) -> None:
        run.state = "free"
        self.join()

    def unmap(self) -> None:
        runs = []
        for run in self.runs:
            first = -(-run.start // self.page) * self.page
            last = (run.start + run.size) // self.page * self.page
            if run.state == "free" and first < last:
                runs += [
                    NaivePage(run.start, first - run.start, "free"),
                    NaivePage(first, last - first, "unmapped"),
                    NaivePage(last, run.start + run.size - last, "free"),
                ]
            else:
                runs.append(run)
        self.runs = [run for run in runs if run.size]
        self.join()

    def join(self) -> None:
        joined: list[NaivePage] = []
        for run in self.runs:
            if joined and joined[-1].state == run.state != "used":
                joined[-1].size += run.size
            else:
                joined.append(run)
        self.runs = joined


@dataclass
class NaiveExpandable:
    """Two ranges, for small and for large requests."""

    capacity: int | None
    max_split: int | None = None
    small: NaiveRange = field(default_factory=lambda: NaiveRange(2 * MIB))
    large: NaiveRange = field(default_factory=lambda: NaiveRange(20 * MIB))
    retries: int = 0

    def reserved(self) -> int:
        return self.small.mapped() + self.large.mapped()

    def allocated(self) -> int:
        return self.small.used() + self.large.used()

    def allocate(self, size: int) -> NaivePage | None:
        size = -(-size // 512) * 512
        own = self.small if size <= MIB else self.large
        run = own.take(size, self.max_split) or own.grow(size, self.room())
        if run is None:
            self.retries += 1
            self.large.unmap()
            self.small.unmap()
            run = own.grow(size, self.room())
        return run

    def room(self) -> int | None:
        return None if self.capacity is None else self.capacity - self.reserved()

    def free(self, freed: NaivePage) -> None:
        (self.small if any(freed is run for run in self.small.runs) else self.large).free(freed)


@given(STEPS, CAPACITIES, st.one_of(st.none(), st.integers(20, 40)))
def test_expandable_segments_agree_with_the_slow_model(
    steps: list[tuple[int, int]], capacity: int | None, max_split_mib: int | None
) -> None:
    max_split = None if max_split_mib is None else max_split_mib * MIB
    options = AllocatorOptions(expandable_segments=True, max_split_bytes=max_split)
    agree(CachingAllocator(capacity, options), NaiveExpandable(capacity, max_split), steps)


@settings(deadline=None)
@given(st.lists(SIZES, max_size=30), st.randoms(use_true_random=False))
def test_once_everything_is_freed_every_page_can_be_unmapped(
    sizes: list[int], random: Random
) -> None:
    everything = 10_000 * MIB
    grown = CachingAllocator(everything, EXPANDABLE)
    handles = [grown.allocate(size) for size in sizes]
    random.shuffle(handles)
    for handle in handles:
        grown.free(handle)
    assert grown.allocated_bytes == 0
    grown.allocate(everything)
    assert grown.reserved_bytes == everything
