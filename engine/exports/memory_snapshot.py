"""A predicted step as a memory snapshot of PyTorch, for its viewer at pytorch.org/memory_viz.

The format is that of ``torch.cuda.memory._snapshot()`` (torch/csrc/cuda/memory_snapshot.cpp and
torch/cuda/memory.py, torch 2.13): segments with their blocks as they are at the end, and what the
allocator did until then. A stack has the operator first, then the modules around it from the inside
out, then the phase of the step, since no line of Python is known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

from ..allocator.caching import ALLOCATE, DEFAULT_OPTIONS, NO_BLOCK, CachingAllocator, Segment
from ..allocator.options import AllocatorOptions
from ..tracing.trace import Trace

_FIRST_ADDRESS = 0x7000_0000_0000
"""Addresses look like those of CUDA: they have 47 bits, which viewers count on."""
_POOL_ADDRESS_BITS = 40

Entry = dict[str, Any]


def memory_snapshot(trace: Trace, options: AllocatorOptions = DEFAULT_OPTIONS) -> Entry:
    """The snapshot after the traced steps, and the last of them once more if it can be repeated.

    So its peaks are those of :meth:`~engine.tracing.trace.Trace.replay` without a limit.

    Args:
        trace: The steps at one batch size.
        options: The options of the caching allocator.

    Returns:
        What ``pickle.dump`` writes into a file that the viewer opens. Sizes in bytes.
    """
    recording = _Recording(trace, options)
    recording.run()
    return {
        "segments": list(recording.segments()),
        "device_traces": [recording.entries],
        "allocator_settings": {"expandable_segments": options.expandable_segments},
        "external_annotations": [],
    }


class _Recording:
    """Replays a trace and writes down what the allocator does."""

    def __init__(self, trace: Trace, options: AllocatorOptions) -> None:
        self.entries: list[Entry] = []
        self._trace = trace
        self._is_expandable = options.expandable_segments
        self._allocator = CachingAllocator(options=options)
        self._held: list[Segment] = []
        self._alive: dict[int, tuple[int, list[Entry]]] = {}  # handle -> tensor, its stack
        self._handles: dict[int, int] = {}  # tensor -> handle
        self._phases = list(map(itemgetter(0), trace.phases))
        self._stack = cache(self._new_stack)

    def run(self) -> None:
        trace = self._trace
        times = 2 if trace.repeatable else 1
        steps = [(0, trace.events)]
        steps += [(trace.last_step, trace.events[trace.last_step :])] * (times - 1)
        for first, events in steps:
            for index, (kind, tensor) in enumerate(events, first):
                if kind == ALLOCATE:
                    self._allocate(tensor, index)
                else:
                    self._free(tensor, index)

    def _allocate(self, tensor: int, index: int) -> None:
        trace, allocator = self._trace, self._allocator
        stream = trace.streams[tensor] if trace.streams else 0
        before = allocator.reserved_bytes
        handle = allocator.allocate(trace.sizes[tensor], stream)
        if handle == NO_BLOCK:
            return
        stack = self._stack_of(tensor, index)
        if allocator.reserved_bytes != before:
            self._note_segments(stack)
        self._alive[handle], self._handles[tensor] = (tensor, stack), handle
        self._note("alloc", handle, trace.sizes[tensor], stream, stack)

    def _free(self, tensor: int, index: int) -> None:
        handle = self._handles.pop(tensor, NO_BLOCK)
        if handle == NO_BLOCK:
            return
        trace = self._trace
        stream = trace.streams[tensor] if trace.streams else 0
        del self._alive[handle]
        self._allocator.free(handle)
        stack = self._stack_of(tensor, index)
        for action in ("free_requested", "free_completed"):
            self._note(action, handle, trace.sizes[tensor], stream, stack)

    def _note_segments(self, stack: Sequence[Entry]) -> None:
        """Write down which segments came and which went."""
        now = self._allocator.segments()
        came, went = (
            ("segment_map", "segment_unmap")
            if self._is_expandable
            else ("segment_alloc", "segment_free")
        )
        for action, one, other in ((went, self._held, now), (came, now, self._held)):
            for address, size, stream in _only_in(one, other):
                self._note(action, address, size, stream, stack)
        self._held = now

    def _note(
        self, action: str, handle: int, size: int, stream: int, stack: Sequence[Entry]
    ) -> None:
        self.entries.append(
            {
                "action": action,
                "addr": _address(handle),
                "size": size,
                "stream": stream,
                "time_us": len(self.entries),  # an order: no times are known
                "frames": stack,
            }
        )

    def _stack_of(self, tensor: int, index: int) -> list[Entry]:
        trace = self._trace
        place = bisect_right(self._phases, index) - 1
        phase = trace.phases[place][1] if place >= 0 else ""
        category = trace.categories[tensor].value
        return self._stack(trace.makers[tensor], trace.modules[tensor], phase, category)

    def _new_stack(self, maker: str, module: str, phase: str, category: str) -> list[Entry]:
        parts = module.split(".") if module else []
        names = [
            maker or category,
            *(".".join(parts[:depth]) for depth in range(len(parts), 0, -1)),
            phase or "before the first step",
        ]
        return [{"filename": category, "line": 0, "name": name} for name in names]

    def segments(self) -> Iterator[Entry]:
        """The segments at the end, with their blocks by address."""
        used = self._allocator.blocks()
        for segment in self._allocator.segments():
            blocks = list(self._blocks(segment, used))
            inside = [block for block in blocks if block["state"] == "active_allocated"]
            yield {
                "device": 0,
                "address": _address(segment.address),
                "total_size": segment.size,
                "stream": segment.stream,
                "segment_type": "large" if segment.is_large else "small",
                "segment_pool_id": (0, 0),
                "is_expandable": self._is_expandable,
                "allocated_size": sum(block["size"] for block in inside),
                "active_size": sum(block["size"] for block in inside),
                "requested_size": sum(block["requested_size"] for block in inside),
                "frames": [],
                "blocks": blocks,
            }

    def _blocks(self, segment: Segment, used: dict[int, int]) -> Iterator[Entry]:
        end = segment.address + segment.size
        place = segment.address
        for handle in sorted(handle for handle in used if segment.address <= handle < end):
            if place < handle:
                yield _block(place, handle - place, 0, "inactive", [])
            tensor, stack = self._alive[handle]
            requested = self._trace.sizes[tensor]
            yield _block(handle, used[handle], requested, "active_allocated", stack)
            place = handle + used[handle]
        if place < end:
            yield _block(place, end - place, 0, "inactive", [])


def _only_in(one: Iterable[Segment], other: Iterable[Segment]) -> Iterator[tuple[int, int, int]]:
    """Address, size and stream of what is in segments of the one and in none of the other."""
    taken = sorted((segment.address, segment.address + segment.size) for segment in other)
    for segment in one:
        place, end = segment.address, segment.address + segment.size
        for begin, after in taken:
            if after <= place or begin >= end:
                continue
            if place < begin:
                yield place, begin - place, segment.stream
            place = after
        if place < end:
            yield place, end - place, segment.stream


def _block(address: int, size: int, requested: int, state: str, stack: Sequence[Entry]) -> Entry:
    return {
        "address": _address(address),
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": stack,
    }


def _address(handle: int) -> int:
    """An address of 47 bits; the leading bits of a handle are the number of its pool."""
    pool, place = handle >> 56, handle & ((1 << 56) - 1)
    return _FIRST_ADDRESS + (pool << _POOL_ADDRESS_BITS) + place
