"""The segments that the caching allocator has from CUDA, and the free blocks in them.

Source of every rule and constant: ``c10/cuda/CUDACachingAllocator.cpp`` and
``c10/core/AllocatorConfig.h`` of PyTorch, whose names stand beside the constants below.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

KIB = 1024
MIB = 1024 * KIB

BLOCK_BYTES = 512
"""Every request is rounded up to a multiple of this (``kMinBlockSize``)."""
SMALL_REQUEST_BYTES = MIB
"""The largest request served from the small pool (``kSmallSize``)."""
SMALL_SEGMENT_BYTES = 2 * MIB
"""Size of the segments of the small pool (``kSmallBuffer``)."""
SHARED_REQUEST_BYTES = 10 * MIB
"""Size from which on a request gets a segment of its own size (``kMinLargeAlloc``)."""
SHARED_SEGMENT_BYTES = 20 * MIB
"""Size of the segments that smaller ones of the large pool share (``large_segment_size``)."""
LARGE_ROUNDING_BYTES = 2 * MIB
"""Segments of their own are rounded up to a multiple of this (``kRoundLarge``)."""
UNSPLIT_EXCESS_BYTES = 20 * MIB
"""A block too large to be split serves requests less than this much below its own size
(``max_non_split_rounding_size``)."""

# A free block is kept as one integer, size above address, so that the order of plain integers is
# the allocator's order of preference (smallest sufficient size, then lowest address).
ADDRESS_BITS = 64
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1

Block = tuple[int, int]
"""Start and size of a block."""


def segment_bytes(rounded: int) -> int:
    """Bytes requested from CUDA where no free block can serve a request of ``rounded`` bytes."""
    if rounded <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if rounded < SHARED_REQUEST_BYTES:
        return SHARED_SEGMENT_BYTES
    return -(-rounded // LARGE_ROUNDING_BYTES) * LARGE_ROUNDING_BYTES


class Pool:
    """The segments of one size class and the free blocks in them.

    New segments get ever higher addresses, with a gap between them, so that only blocks of the
    same segment touch. (CUDA's own choice of addresses is not known; it decides nothing but
    which of two free blocks of equal size is taken first.)

    Args:
        first_address: Where the pool's addresses begin.
        smallest_remainder: A block is split only if at least this many bytes are left over.

    Attributes:
        held_bytes: Sum of the segments.
    """

    __slots__ = (
        "_by_end",
        "_by_size",
        "_by_start",
        "_next_address",
        "_segments",
        "_smallest",
        "held_bytes",
    )

    def __init__(self, first_address: int, smallest_remainder: int) -> None:
        self.held_bytes = 0
        self._next_address = first_address
        self._smallest = smallest_remainder
        self._segments: dict[int, int] = {}  # start -> size
        self._by_size: list[int] = []  # size << ADDRESS_BITS | start, sorted
        self._by_start: dict[int, int] = {}  # start -> size
        self._by_end: dict[int, int] = {}  # end -> start

    def take(self, rounded: int) -> Block | None:
        """The best-fitting free block, split if worth it; ``None`` if there is none."""
        by_size = self._by_size
        index = bisect_left(by_size, rounded << ADDRESS_BITS)
        if index == len(by_size):
            return None
        # As _pick and _carve do; a replay spends most of its time here and in give.
        key = by_size.pop(index)
        start, size = key & ADDRESS_MASK, key >> ADDRESS_BITS
        del self._by_start[start]
        rest = size - rounded
        # Too little to keep apart: the request gets it too, and it counts as allocated.
        if rest < self._smallest:
            del self._by_end[start + size]
            return start, size
        after = start + rounded
        self._by_start[after] = rest
        self._by_end[start + size] = after
        # Smaller than the block that was taken from ``index``, so it belongs before that.
        insort(by_size, rest << ADDRESS_BITS | after, 0, index)
        return start, rounded

    def give(self, start: int, size: int) -> None:
        """Free a block, and join it with the free blocks on either side of it."""
        by_size, by_start, by_end = self._by_size, self._by_start, self._by_end
        # At most one on either side: free neighbours have been joined as soon as they were free.
        before = by_end.pop(start, None)
        if before is not None:
            before_size = by_start.pop(before)
            del by_size[bisect_left(by_size, before_size << ADDRESS_BITS | before)]
            start = before
            size += before_size
        after = start + size
        after_size = by_start.pop(after, None)
        if after_size is not None:
            del by_size[bisect_left(by_size, after_size << ADDRESS_BITS | after)]
            size += after_size
        by_start[start] = size
        by_end[start + size] = start
        insort(by_size, size << ADDRESS_BITS | start)

    def grow(self, rounded: int, room: int | None) -> Block | None:
        """A block from memory that is requested from CUDA.

        Args:
            rounded: Its size.
            room: The most that CUDA can give; ``None`` for no limit.

        Returns:
            The block, or ``None`` if there is no room for it.
        """
        size = segment_bytes(rounded)
        if room is not None and size > room:
            return None
        start = self._next_address
        # The gap keeps blocks of two segments, which CUDA takes back apart, from being joined.
        self._next_address = start + size + BLOCK_BYTES
        self._segments[start] = size
        self.held_bytes += size
        return self._carve(start, size, rounded)

    def release_for(self, rounded: int) -> bool:
        """Give back just what a request needs; whether that was enough.

        Only where blocks have a largest size (``release_available_cached_blocks``).
        """
        return False

    def release(self) -> None:
        """Give every segment back to CUDA that has no block in use."""
        for start, size in list(self._segments.items()):
            # One free block as large as the segment: joined, whatever was in it.
            if self._by_start.get(start) == size:
                self._release_segment(start, size)

    def free_blocks(self) -> dict[int, int]:
        """The size of each free block, by where it starts."""
        return dict(self._by_start)

    def segments(self) -> dict[int, int]:
        """The size of each segment, by where it starts."""
        return dict(self._segments)

    def _release_segment(self, start: int, size: int) -> None:
        del self._segments[start], self._by_start[start], self._by_end[start + size]
        self._forget(start, size)
        self.held_bytes -= size

    def _pick(self, index: int) -> Block:
        """Take a free block off all lists, given its place in the order of sizes."""
        key = self._by_size.pop(index)
        start = key & ADDRESS_MASK
        size = key >> ADDRESS_BITS
        del self._by_start[start], self._by_end[start + size]
        return start, size

    def _carve(self, start: int, size: int, rounded: int) -> Block:
        """Cut a block that is on no list down to ``rounded`` bytes, if the rest is worth it."""
        remainder = size - rounded
        if remainder < self._smallest:
            return start, size
        self._add_free(start + rounded, remainder)
        return start, rounded

    def _add_free(self, start: int, size: int) -> None:
        self._by_start[start] = size
        self._by_end[start + size] = start
        insort(self._by_size, size << ADDRESS_BITS | start)

    def _forget(self, start: int, size: int) -> None:
        """Take a free block off the list by size; the two others are the caller's."""
        del self._by_size[bisect_left(self._by_size, size << ADDRESS_BITS | start)]


class UnsplitPool(Pool):
    """A pool whose blocks are not split from a size on (``max_split_size_mb``).

    Args:
        first_address: Where the pool's addresses begin.
        smallest_remainder: A block is split only if at least this many bytes are left over.
        max_split_bytes: Blocks from this size on are not split, and serve no smaller request.
    """

    __slots__ = ("_max_split",)

    def __init__(self, first_address: int, smallest_remainder: int, max_split_bytes: int) -> None:
        super().__init__(first_address, smallest_remainder)
        self._max_split = max_split_bytes

    def take(self, rounded: int) -> Block | None:
        """The best-fitting free block, if it may serve this request."""
        index = bisect_left(self._by_size, rounded << ADDRESS_BITS)
        if index == len(self._by_size):
            return None
        if not may_serve(self._by_size[index] >> ADDRESS_BITS, rounded, self._max_split):
            return None
        return self._carve(*self._pick(index), rounded)

    def release_for(self, rounded: int) -> bool:
        """Give back the smallest unsplit block that is large enough, else the largest ones.

        A free block from ``max_split_bytes`` on is always a whole segment.
        """
        # Smaller blocks may be parts of segments, which CUDA takes back as a whole only.
        wanted = max(rounded, self._max_split)
        index = bisect_left(self._by_size, wanted << ADDRESS_BITS)
        if index < len(self._by_size):
            self._release_key(self._by_size[index])
            return True
        released = 0
        while self._by_size and released < wanted:
            largest = self._by_size[-1]
            if largest >> ADDRESS_BITS < self._max_split:
                break
            self._release_key(largest)
            released += largest >> ADDRESS_BITS
        return released >= wanted

    def _release_key(self, key: int) -> None:
        self._release_segment(key & ADDRESS_MASK, key >> ADDRESS_BITS)

    def _carve(self, start: int, size: int, rounded: int) -> Block:
        if rounded >= self._max_split:
            return start, size
        return super()._carve(start, size, rounded)


def may_serve(size: int, rounded: int, max_split_bytes: int) -> bool:
    """Whether a free block of ``size`` bytes may serve a request, given the largest to be split."""
    if rounded < max_split_bytes:
        return size < max_split_bytes
    return size < rounded + UNSPLIT_EXCESS_BYTES


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
        # Of blocks that are large enough, one that cannot grow is preferred to a smaller one that
        # can: what could be mapped behind that is left for a request that needs it.
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
            # The bounds of pages within the block: up from its start, and down from its end.
            first = start + (self._base - start) % self._page
            last = start + size - (start + size - self._base) % self._page
            if first < last:
                self._unmap(start, size, first, last)
        self._join_holes()

    def segments(self) -> dict[int, int]:
        """The size of each range that is mapped, by where it starts."""
        found, start = {}, self._base
        for hole in self._holes_upwards():
            if start < hole:
                found[start] = hole - start
            start = hole + self._holes[hole]
        if start < self._tail:
            found[start] = self._tail - start
        return found

    def _reach(self, key: int) -> int:
        """Size that a free block can reach by mapping what follows it."""
        size = key >> ADDRESS_BITS
        return size + self._unmapped_at((key & ADDRESS_MASK) + size)

    def _unmapped_at(self, address: int) -> int:
        return _ENDLESS if address == self._tail else self._holes.get(address, 0)

    def _lowest_with_space(self, rounded: int) -> int:
        for hole in self._holes_upwards():
            # A free block right below the hole is the beginning of the space.
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
        # A hole at the end is no hole: the range ends before it.
        if end == self._tail:
            self._tail -= joined.pop(begin)
        self._holes = joined
