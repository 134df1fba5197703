"""A model of PyTorch's CUDA caching allocator, fast enough to replay a training step's trace.

What a GPU runs out of is not what tensors hold but what the caching allocator has *reserved* from
CUDA for them: it rounds requests up, carves them out of segments, and keeps freed memory for
later. This module repeats its rules, with the options that matter
(:mod:`engine.allocator.options`), so that a trace of allocations and frees gives both peaks and
says whether the trace fits a capacity.

Source of every rule: ``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .options import AllocatorOptions
from .pools import (
    ADDRESS_BITS,
    BLOCK_BYTES,
    SHARED_SEGMENT_BYTES,
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
    Block,
    ExpandablePool,
    Pool,
    UnsplitPool,
)

NO_BLOCK = 0
"""The handle of a request for nothing; freeing it does nothing."""

ALLOCATE = 0
FREE = 1

DEFAULT_OPTIONS = AllocatorOptions()

# The pools never exchange blocks, so each gets a part of the address space, and an address alone
# tells its pool: its leading bits are twice the stream's number, plus one for the large pool.
_POOL_ADDRESS_BITS = ADDRESS_BITS - 8
MAX_STREAMS = 128


class AllocatorOutOfMemory(Exception):
    """A request did not fit, even after every unused segment was given back.

    Attributes:
        requested_bytes: The requested size, before rounding.
        allocated_bytes: Sum of the blocks in use at that moment.
        reserved_bytes: Sum of the segments held at that moment, after giving back.
    """

    def __init__(self, requested_bytes: int, allocated_bytes: int, reserved_bytes: int) -> None:
        self.requested_bytes = requested_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes
        super().__init__(
            f"{requested_bytes:,} bytes requested with {allocated_bytes:,} allocated "
            f"and {reserved_bytes:,} reserved"
        )


def _pools(stream: int, options: AllocatorOptions) -> tuple[Pool, Pool]:
    """The small and the large pool of a stream."""
    max_split = options.max_split_bytes
    small_start = (2 * stream << _POOL_ADDRESS_BITS) + BLOCK_BYTES
    large_start = 2 * stream + 1 << _POOL_ADDRESS_BITS
    if options.expandable_segments:
        return (
            ExpandablePool(small_start, SMALL_SEGMENT_BYTES, max_split),
            ExpandablePool(large_start, SHARED_SEGMENT_BYTES, max_split),
        )
    # Small blocks split down to one unit; large ones only if more than 1 MiB is left.
    small = Pool(small_start, BLOCK_BYTES)
    remainder = SMALL_REQUEST_BYTES + BLOCK_BYTES
    if max_split is not None:
        return small, UnsplitPool(large_start, remainder, max_split)
    return small, Pool(large_start, remainder)


@dataclass(frozen=True, order=True)
class Segment:
    """Memory that the allocator has from CUDA, in one piece.

    Attributes:
        address: Where it begins.
        size: In bytes.
        stream: The CUDA stream that it serves.
        is_large: Whether it is of the pool of requests above 1 MiB.
    """

    address: int
    size: int
    stream: int
    is_large: bool


class CachingAllocator:
    """Serves requests as PyTorch's CUDA caching allocator does, without any memory behind it.

    Args:
        capacity_bytes: The most it may reserve (what the GPU has left beside the CUDA context and
            libraries); ``None`` for no limit.
        options: Its options.

    Attributes:
        allocated_bytes: Sum of the blocks in use (rounded sizes, as ``torch.cuda`` counts).
        reserved_bytes: Sum of the segments held, or of the pages mapped.
        peak_allocated_bytes: The highest ``allocated_bytes`` so far.
        peak_reserved_bytes: The highest ``reserved_bytes`` so far.
        retries: Number of times unused segments were given back to serve a request
            (``num_alloc_retries``); anything above zero slows a real step down a lot.
    """

    __slots__ = (
        "_blocks",
        "_capacity",
        "_large",
        "_options",
        "_pools",
        "_rounds",
        "_small",
        "allocated_bytes",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "reserved_bytes",
        "retries",
    )

    def __init__(
        self, capacity_bytes: int | None = None, options: AllocatorOptions = DEFAULT_OPTIONS
    ) -> None:
        if capacity_bytes is not None and capacity_bytes < 0:
            raise ValueError(f"a capacity cannot be negative: {capacity_bytes}")
        self._capacity = capacity_bytes
        self._options = options
        self._rounds = bool(options.roundup_power2_divisions)
        self._small, self._large = _pools(0, options)
        # By the leading bits of their addresses.
        self._pools: dict[int, Pool] = {0: self._small, 1: self._large}
        self._blocks: dict[int, int] = {}  # start -> size of the blocks in use
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes = 0
        self.retries = 0

    def allocate(self, size: int, stream: int = 0) -> int:
        """Serve a request for ``size`` bytes.

        Args:
            size: In bytes.
            stream: The CUDA stream it is made in, below :data:`MAX_STREAMS`: freed memory serves
                its own stream only.

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
        if self._rounds:
            rounded = self._options.round_up(size, BLOCK_BYTES)
        else:
            rounded = (size + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES
        if stream:  # rare, so that the usual request is spared a call
            pool = self._pool(stream, rounded)
        else:
            pool = self._small if rounded <= SMALL_REQUEST_BYTES else self._large
        block = pool.take(rounded)
        if block is None:
            block = self._grow(pool, rounded)
            if block is None:
                raise AllocatorOutOfMemory(size, self.allocated_bytes, self.reserved_bytes)
        start, held = block  # it may hold more than was asked for, where no rest was split off
        self._blocks[start] = held
        allocated = self.allocated_bytes = self.allocated_bytes + held
        if allocated > self.peak_allocated_bytes:
            self.peak_allocated_bytes = allocated
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
        self._pools[handle >> _POOL_ADDRESS_BITS].give(handle, held)

    def layout(self) -> object:
        """Positions of all blocks: from equal layouts on, equal requests are served alike."""
        return dict(self._blocks), {key: pool.free_blocks() for key, pool in self._pools.items()}

    def blocks(self) -> dict[int, int]:
        """The size of each block in use, by its handle."""
        return dict(self._blocks)

    def segments(self) -> list[Segment]:
        """The segments held, by pool and address."""
        return [
            Segment(address, size, key >> 1, is_large=bool(key & 1))
            for key, pool in sorted(self._pools.items())
            for address, size in sorted(pool.segments().items())
        ]

    def _pool(self, stream: int, rounded: int) -> Pool:
        """The pool of a stream for a request of this size."""
        if 2 * stream not in self._pools:
            self._pools[2 * stream], self._pools[2 * stream + 1] = _pools(stream, self._options)
        return self._pools[2 * stream + (rounded > SMALL_REQUEST_BYTES)]

    def _grow(self, pool: Pool, rounded: int) -> Block | None:
        """A block from new memory, giving back unused memory of all pools if there is no room."""
        # In PyTorch's order: new memory, then what one request needs, then all that is
        # unused, in pools of other streams and sizes too, for CUDA's memory is one.
        block = self._try_to_grow(pool, rounded)
        if block is None and pool.release_for(rounded):
            block = self._try_to_grow(pool, rounded)
        if block is None:
            self.retries += 1
            for unused in self._pools.values():
                unused.release()
            block = self._try_to_grow(pool, rounded)
        return block

    def _try_to_grow(self, pool: Pool, rounded: int) -> Block | None:
        # Summed anew: growing may map pages and then fail, and release gives back in any pool.
        held = sum(each.held_bytes for each in self._pools.values())
        block = pool.grow(rounded, None if self._capacity is None else self._capacity - held)
        self.reserved_bytes = sum(each.held_bytes for each in self._pools.values())
        if self.reserved_bytes > self.peak_reserved_bytes:
            self.peak_reserved_bytes = self.reserved_bytes
        return block


@dataclass(frozen=True)
class ReplayResult:
    """Memory that a trace of allocations and frees needs.

    Where it does not fit, the peaks are those reached before the failing event: a lower bound of
    what the trace needs. Replay it without a capacity to know the whole.

    Attributes:
        fits: Whether every event was served.
        peak_allocated_bytes: Most bytes in blocks in use at once.
        peak_reserved_bytes: Most bytes in segments at once.
        retries: Number of times unused segments had to be given back.
        peak_event_index: Index of the event that first reached the peak allocated, so that
            ``events[: peak_event_index + 1]`` leads to the peak; -1 where nothing was allocated.
        failed_event_index: Index of the event that could not be served, if any.
        failed_request_bytes: The size that event requested, if any.
    """

    fits: bool
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    retries: int
    peak_event_index: int
    failed_event_index: int | None = None
    failed_request_bytes: int | None = None


def replay(
    events: Iterable[tuple[int, int]],
    sizes: Sequence[int],
    capacity_bytes: int | None = None,
    options: AllocatorOptions = DEFAULT_OPTIONS,
    streams: Sequence[int] = (),
    again: Sequence[tuple[int, int]] = (),
    times: int = 1,
) -> ReplayResult:
    """Run a trace through a fresh :class:`CachingAllocator`.

    Args:
        events: Pairs of :data:`ALLOCATE` or :data:`FREE` and the id of a tensor, in order. A
            tensor is freed at most once after it was allocated; an id may be used again then.
        sizes: Bytes of each tensor, by id.
        capacity_bytes: The most that may be reserved; ``None`` gives the peaks with no limit.
        options: The options of the allocator.
        streams: The stream each tensor is made in, by id; empty where all are made in one.
        again: Events that come after those, again and again.
        times: The most that they do; fewer where they leave every block where it lay before, since
            nothing changes from there on.

    Raises:
        ValueError: If the trace frees what is not allocated, allocates what already is, or holds
            another kind of event.
    """
    allocator = CachingAllocator(capacity_bytes, options)
    allocate, free = allocator.allocate, allocator.free
    handles: dict[int, int] = {}
    peak, peak_index = 0, -1
    failed_index: int | None = None
    for index, (kind, tensor) in enumerate(_until_settled(allocator, events, again, times)):
        if kind == FREE and (handle := handles.pop(tensor, None)) is not None:
            free(handle)
        elif kind == ALLOCATE and tensor not in handles:
            try:
                if streams:
                    handles[tensor] = allocate(sizes[tensor], streams[tensor])
                else:
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


def _until_settled(
    allocator: CachingAllocator,
    events: Iterable[tuple[int, int]],
    again: Sequence[tuple[int, int]],
    times: int,
) -> Iterator[tuple[int, int]]:
    """The events, then the others ``times`` times, or until they change nothing any more."""
    yield from events
    for time in range(times if again else 0):
        # Copies all blocks, so not where no repetition would be spared.
        before = allocator.layout() if time + 1 < times else None
        yield from again
        if before is not None and allocator.layout() == before:
            return
