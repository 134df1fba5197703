"""Segments that grow by pages (``expandable_segments:True``), in place of many of fixed size.

Source of the rules: ``ExpandableSegment``, ``find_expandable_block``, ``map_block`` and
``unmap_block`` in ``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from engine.allocator.segments import (
    ADDRESS_BITS,
    ADDRESS_MASK,
    BLOCK_BYTES,
    Block,
    Pool,
    may_serve,
)

_ENDLESS = 1 << 60


class ExpandablePool(Pool):
    """One range of addresses, of which pages are mapped to memory where blocks need it.

    PyTorch reserves addresses for 9/8 of the GPU's memory and begins another range where those run
    out; here the range has no end, which differs only if more than an eighth of it is unmapped
    holes.

    Args:
        first_address: Where the pool's addresses begin.
        page_bytes: The unit in which memory is mapped: 2 MiB in the small pool, 20 MiB in the large
            one.
        max_split_bytes: Free blocks from this size on serve no smaller request, though they would
            be split; ``None`` for no such limit.

    Attributes:
        held_bytes: Sum of the mapped pages.
    """

    __slots__ = ("_base", "_holes", "_max_split", "_page", "_tail")

    def __init__(self, first_address: int, page_bytes: int, max_split_bytes: int | None) -> None:
        super().__init__(first_address, BLOCK_BYTES)
        self._base = self._tail = first_address
        self._page = page_bytes
        self._max_split = max_split_bytes
        self._holes: dict[int, int] = {}  # start -> size of what is unmapped below the tail

    def take(self, rounded: int) -> Block | None:
        """The best-fitting free block, counting what can be mapped behind it as its own."""
        by_size = self._by_size
        index = bisect_left(by_size, rounded << ADDRESS_BITS)
        if index == len(by_size):
            return None
        reach = self._reach(by_size[index])
        while index + 1 < len(by_size):
            next_reach = self._reach(by_size[index + 1])
            if next_reach >= reach:
                break
            index, reach = index + 1, next_reach
        if self._max_split is not None:
            size = by_size[index] >> ADDRESS_BITS
            if not may_serve(size, rounded, self._max_split):
                return None
        return self._carve(*self._pick(index), rounded)

    def grow(self, rounded: int, room: int | None) -> Block | None:
        """A block at the lowest address where free and unmapped ranges leave space for it.

        What is mapped stays mapped where there is no room for the rest.
        """
        start = self._lowest_with_space(rounded)
        end = start + self._by_start.get(start, 0)
        while end - start < rounded:
            # Free neighbours are always joined, so what follows is unmapped.
            missing = min(rounded - (end - start), self._unmapped_at(end))
            size = -(-missing // self._page) * self._page
            if room is not None:
                room -= size
                if room < 0:
                    return None
            self._map(end, size)
            end = start + self._by_start[start]
        index = bisect_left(self._by_size, (end - start) << ADDRESS_BITS | start)
        return self._carve(*self._pick(index), rounded)

    def release(self) -> None:
        """Unmap every page that lies whole in a free block."""
        for start, size in list(self._by_start.items()):
            first = start + (self._base - start) % self._page
            last = start + size - (start + size - self._base) % self._page
            if first < last:
                self._unmap(start, size, first, last)
        self._join_holes()

    def _reach(self, key: int) -> int:
        """How large a free block can get by mapping what follows it."""
        size = key >> ADDRESS_BITS
        return size + self._unmapped_at((key & ADDRESS_MASK) + size)

    def _unmapped_at(self, address: int) -> int:
        return _ENDLESS if address == self._tail else self._holes.get(address, 0)

    def _lowest_with_space(self, rounded: int) -> int:
        for hole in self._holes_upwards():
            start = self._by_end.get(hole, hole)
            if self._has_space(start, rounded):
                return start
        return self._by_end.get(self._tail, self._tail)

    def _holes_upwards(self) -> Iterator[int]:
        return iter(sorted(self._holes))

    def _has_space(self, start: int, rounded: int) -> bool:
        end = start
        while end - start < rounded:
            size = self._by_start.get(end) or self._unmapped_at(end)
            if not size:
                return False
            end += size
        return True

    def _map(self, start: int, size: int) -> None:
        if start == self._tail:
            self._tail += size
        else:
            hole = self._holes.pop(start)
            if hole > size:
                self._holes[start + size] = hole - size
        self.held_bytes += size
        self.give(start, size)

    def _unmap(self, start: int, size: int, first: int, last: int) -> None:
        """Unmap from ``first`` to ``last``, page bounds within a free block."""
        del self._by_start[start], self._by_end[start + size]
        self._forget(start, size)
        if start < first:
            self._add_free(start, first - start)
        if last < start + size:
            self._add_free(last, start + size - last)
        self._holes[first] = last - first
        self.held_bytes -= last - first

    def _join_holes(self) -> None:
        joined: dict[int, int] = {}
        end = -1
        begin = -1
        for start in sorted(self._holes):
            if start == end:
                joined[begin] += self._holes[start]
            else:
                begin = start
                joined[begin] = self._holes[start]
            end = begin + joined[begin]
        if end == self._tail:
            self._tail -= joined.pop(begin)
        self._holes = joined
