"""A model of PyTorch's CUDA caching allocator, fast enough to replay a training step's trace.

What a GPU runs out of is not what tensors hold but what the caching allocator has *reserved* from
CUDA for them: it rounds requests up, carves them out of segments, and keeps freed memory for
later. This module repeats its rules, for one stream and the default configuration (neither
``expandable_segments`` nor ``max_split_size_mb``), so that a trace of allocations and frees gives
both peaks and says whether the trace fits a capacity.

Source of every rule and constant: ``c10/cuda/CUDACachingAllocator.cpp`` and
``c10/core/AllocatorConfig.h`` of PyTorch, whose names stand beside the constants below.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

BLOCK_BYTES = 512
"""Every request is rounded up to a multiple of this (``kMinBlockSize``)."""
SMALL_REQUEST_BYTES = MIB
"""The largest request served from the small pool (``kSmallSize``)."""
SMALL_SEGMENT_BYTES = 2 * MIB
"""Size of the segments of the small pool (``kSmallBuffer``)."""
SHARED_REQUEST_BYTES = 10 * MIB
"""From this size on a request gets a segment of its own size (``kMinLargeAlloc``)."""
SHARED_SEGMENT_BYTES = 20 * MIB
"""Size of the segments that smaller ones of the large pool share (``kLargeBuffer``)."""
LARGE_ROUNDING_BYTES = 2 * MIB
"""Segments of their own are rounded up to a multiple of this (``kRoundLarge``)."""

NO_BLOCK = 0
"""The handle of a request for nothing; freeing it does nothing."""

ALLOCATE = 0
FREE = 1

# A free block is kept as one integer, size above address, so that the order of plain integers is
# the allocator's order of preference (smallest sufficient size, then lowest address).
_ADDRESS_BITS = 64
_ADDRESS_MASK = (1 << _ADDRESS_BITS) - 1
# The pools never exchange blocks, so each gets a half of the address space, and an address alone
# tells its pool.
_LARGE_POOL_START = 1 << (_ADDRESS_BITS - 1)


class AllocatorOutOfMemory(Exception):
    """A request did not fit, even after every unused segment was given back.

    Attributes:
        requested_bytes: The size that was asked for, before rounding.
        allocated_bytes: What blocks in use held at that moment.
        reserved_bytes: What the allocator held at that moment, after giving back.
    """

    def __init__(self, requested_bytes: int, allocated_bytes: int, reserved_bytes: int) -> None:
        self.requested_bytes = requested_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes
        super().__init__(
            f"{requested_bytes:,} bytes requested with {allocated_bytes:,} allocated "
            f"and {reserved_bytes:,} reserved"
        )


def segment_bytes(rounded: int) -> int:
    """Bytes asked of CUDA where no free block can serve a request of ``rounded`` bytes."""
    if rounded <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if rounded < SHARED_REQUEST_BYTES:
        return SHARED_SEGMENT_BYTES
    return -(-rounded // LARGE_ROUNDING_BYTES) * LARGE_ROUNDING_BYTES


class _Pool:
    """The segments of one size class and the free blocks in them.

    New segments get ever higher addresses, with a gap between them, so that only blocks of the
    same segment touch. (CUDA's own choice of addresses is not known; it decides nothing but
    which of two free blocks of equal size is taken first.)

    Args:
        first_address: Where the pool's addresses begin.
        smallest_remainder: A block is split only if at least so many bytes are left over.
    """

    __slots__ = ("_by_end", "_by_size", "_by_start", "_next_address", "_segments", "_smallest")

    def __init__(self, first_address: int, smallest_remainder: int) -> None:
        self._next_address = first_address
        self._smallest = smallest_remainder
        self._segments: dict[int, int] = {}  # start -> size
        self._by_size: list[int] = []  # size << _ADDRESS_BITS | start, sorted
        self._by_start: dict[int, int] = {}  # start -> size
        self._by_end: dict[int, int] = {}  # end -> start

    def take(self, rounded: int) -> tuple[int, int] | None:
        """The start and size of the best-fitting free block, split if worth it; else ``None``."""
        index = bisect_left(self._by_size, rounded << _ADDRESS_BITS)
        if index == len(self._by_size):
            return None
        key = self._by_size.pop(index)
        start = key & _ADDRESS_MASK
        size = key >> _ADDRESS_BITS
        del self._by_start[start], self._by_end[start + size]
        return self._carve(start, size, rounded)

    def take_from_new_segment(self, size: int, rounded: int) -> tuple[int, int]:
        """The start and size of a block for ``rounded`` bytes, at the start of a new segment."""
        start = self._next_address
        self._next_address = start + size + BLOCK_BYTES
        self._segments[start] = size
        return self._carve(start, size, rounded)

    def give(self, start: int, size: int) -> None:
        """Free a block, and join it with the free blocks on either side of it."""
        before = self._by_end.pop(start, None)
        if before is not None:
            before_size = self._by_start.pop(before)
            self._forget(before, before_size)
            start = before
            size += before_size
        after_size = self._by_start.pop(start + size, None)
        if after_size is not None:
            self._forget(start + size, after_size)
            size += after_size
        self._add_free(start, size)

    def _carve(self, start: int, size: int, rounded: int) -> tuple[int, int]:
        """Cut a block that is on no list down to ``rounded`` bytes, if the rest is worth it."""
        remainder = size - rounded
        if remainder < self._smallest:
            return start, size
        self._add_free(start + rounded, remainder)
        return start, rounded

    def _add_free(self, start: int, size: int) -> None:
        self._by_start[start] = size
        self._by_end[start + size] = start
        insort(self._by_size, size << _ADDRESS_BITS | start)

    def _forget(self, start: int, size: int) -> None:
        """Take a free block off the list by size; the two others are the caller's."""
        del self._by_size[bisect_left(self._by_size, size << _ADDRESS_BITS | start)]

    def release_free_segments(self) -> int:
        """Give back every segment with no block in use; returns how many bytes that were."""
        released = 0
        for start, size in list(self._segments.items()):
            if self._by_start.get(start) == size:
                del self._segments[start], self._by_start[start], self._by_end[start + size]
                self._forget(start, size)
                released += size
        return released


class CachingAllocator:
    """Serves requests as PyTorch's CUDA caching allocator does, without any memory behind it.

    Args:
        capacity_bytes: The most it may reserve (what the GPU has left beside the CUDA context and
            libraries); ``None`` for no limit.

    Attributes:
        allocated_bytes: Sum of the blocks in use (rounded sizes, as ``torch.cuda`` counts).
        reserved_bytes: Sum of the segments held.
        peak_allocated_bytes: The highest ``allocated_bytes`` so far.
        peak_reserved_bytes: The highest ``reserved_bytes`` so far.
        retries: How often unused segments were given back to serve a request
            (``num_alloc_retries``); anything above zero slows a real step down a lot.
    """

    __slots__ = (
        "_blocks",
        "_capacity",
        "_large",
        "_small",
        "allocated_bytes",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "reserved_bytes",
        "retries",
    )

    def __init__(self, capacity_bytes: int | None = None) -> None:
        if capacity_bytes is not None and capacity_bytes < 0:
            raise ValueError(f"a capacity cannot be negative: {capacity_bytes}")
        self._capacity = capacity_bytes
        # Small blocks split down to one unit; large ones only if more than 1 MiB is left.
        self._small = _Pool(BLOCK_BYTES, BLOCK_BYTES)
        self._large = _Pool(_LARGE_POOL_START, SMALL_REQUEST_BYTES + BLOCK_BYTES)
        self._blocks: dict[int, int] = {}  # start -> size of the blocks in use
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes = 0
        self.retries = 0

    def allocate(self, size: int) -> int:
        """Serve a request for ``size`` bytes.

        Returns:
            The block's handle (its address), or :data:`NO_BLOCK` for a request of zero bytes.

        Raises:
            AllocatorOutOfMemory: If it does not fit even after giving back unused segments.
            ValueError: If ``size`` is negative.
        """
        if size <= 0:
            if size < 0:
                raise ValueError(f"a size cannot be negative: {size}")
            return NO_BLOCK
        rounded = (size + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES
        pool = self._small if rounded <= SMALL_REQUEST_BYTES else self._large
        block = pool.take(rounded)
        if block is None:
            segment = segment_bytes(rounded)
            self._reserve(segment, size)
            block = pool.take_from_new_segment(segment, rounded)
        start, held = block
        self._blocks[start] = held
        self.allocated_bytes += held
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes
        return start

    def free(self, handle: int) -> None:
        """Free the block of a handle that :meth:`allocate` returned.

        Raises:
            ValueError: If no block in use has this handle.
        """
        if handle == NO_BLOCK:
            return
        held = self._blocks.pop(handle, None)
        if held is None:
            raise ValueError(f"no block in use has the handle {handle}")
        self.allocated_bytes -= held
        (self._small if handle < _LARGE_POOL_START else self._large).give(handle, held)

    def _reserve(self, segment: int, requested: int) -> None:
        """Count a new segment in, giving back unused ones of both pools where there is no room.

        Raises:
            AllocatorOutOfMemory: If there is no room even then.
        """
        if self._capacity is not None and self.reserved_bytes + segment > self._capacity:
            self.retries += 1
            for pool in (self._large, self._small):
                self.reserved_bytes -= pool.release_free_segments()
            if self.reserved_bytes + segment > self._capacity:
                raise AllocatorOutOfMemory(requested, self.allocated_bytes, self.reserved_bytes)
        self.reserved_bytes += segment
        if self.reserved_bytes > self.peak_reserved_bytes:
            self.peak_reserved_bytes = self.reserved_bytes


@dataclass(frozen=True)
class ReplayResult:
    """What a trace of allocations and frees needs.

    Where it does not fit, the peaks are those reached before the failing event: a lower bound of
    what the trace needs. Replay it without a capacity to know the whole.

    Attributes:
        fits: Whether every event was served.
        peak_allocated_bytes: Most bytes in blocks in use at once.
        peak_reserved_bytes: Most bytes in segments at once.
        retries: How often unused segments had to be given back.
        peak_event_index: Index of the event that first reached the peak allocated, so that
            ``events[: peak_event_index + 1]`` leads to the peak; -1 where nothing was allocated.
        failed_event_index: Index of the event that could not be served, if any.
        failed_request_bytes: The size that event asked for, if any.
    """

    fits: bool
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    retries: int
    peak_event_index: int
    failed_event_index: int | None = None
    failed_request_bytes: int | None = None


def replay(
    events: Iterable[tuple[int, int]], sizes: Sequence[int], capacity_bytes: int | None = None
) -> ReplayResult:
    """Run a trace through a fresh :class:`CachingAllocator`.

    Args:
        events: Pairs of :data:`ALLOCATE` or :data:`FREE` and the id of a tensor, in order. A
            tensor is freed at most once after it was allocated; an id may be used again then.
        sizes: Bytes of each tensor, by id.
        capacity_bytes: The most that may be reserved; ``None`` gives the peaks with no limit.

    Raises:
        ValueError: If the trace frees what is not allocated, allocates what already is, or holds
            another kind of event.
    """
    allocator = CachingAllocator(capacity_bytes)
    allocate, free = allocator.allocate, allocator.free
    handles: dict[int, int] = {}
    peak, peak_index = 0, -1
    failed_index: int | None = None
    for index, (kind, tensor) in enumerate(events):
        if kind == FREE and tensor in handles:
            free(handles.pop(tensor))
        elif kind == ALLOCATE and tensor not in handles:
            try:
                handles[tensor] = allocate(sizes[tensor])
            except AllocatorOutOfMemory:
                failed_index = index
                break
            if allocator.allocated_bytes > peak:
                peak, peak_index = allocator.allocated_bytes, index
        else:
            raise ValueError(f"event {index} of the trace is not possible: ({kind}, {tensor})")
    return ReplayResult(
        fits=failed_index is None,
        peak_allocated_bytes=allocator.peak_allocated_bytes,
        peak_reserved_bytes=allocator.peak_reserved_bytes,
        retries=allocator.retries,
        peak_event_index=peak_index,
        failed_event_index=failed_index,
        failed_request_bytes=None if failed_index is None else sizes[tensor],
    )
