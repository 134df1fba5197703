"""The allocations of a growing cache at the lengths between those at which a trace has it.

A dynamic cache is allocated anew with each token, and every block that it leaves is a little too
small for the next: the allocator may come to hold several times what the tensors take. That
depends on all lengths that the cache passes, of which a trace runs only a few
(:data:`engine.step.generating.GROWTHS`). Those between do the same with other sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ...allocator.caching import ALLOCATE, FREE
from ...allocator.pools import SMALL_REQUEST_BYTES
from ...tracing.trace import GROWTH, TOKEN, Trace

MAX_LENGTHS = 256
"""Lengths replayed between the first and the last token: all of them up to as many new tokens.
Where there are more, less is reserved than by all of them, and what fits is the same."""

_CONCATENATES = "aten.cat"


@dataclass(frozen=True)
class _Part:
    """Part of a trace at one of its lengths.

    Attributes:
        begin, end: The events of making the cache that long.
        old, new: The tensors of the cache before and then, in the order of the layers.
        token: The events of reading a token then.
        concatenated: The tensors of the cache after that.
        tokens: Tokens by which it got longer.
        slopes: Bytes that each tensor of reading a token takes more for each token of the cache.
    """

    begin: int
    end: int
    old: Sequence[int]
    new: Sequence[int]
    token: Sequence[tuple[int, int]]
    concatenated: Sequence[int]
    tokens: int
    slopes: Mapping[int, float]

    def size(self, tensor: int, sizes: Sequence[int], share: float) -> int:
        """Bytes of a tensor made by reading a token, where the cache has grown by ``share``."""
        left = (1 - share) * self.tokens
        return sizes[tensor] - int(self.slopes.get(tensor, 0.0) * left)


def at_more_lengths(trace: Trace, most: int = MAX_LENGTHS) -> Trace:
    """The trace with more lengths of the cache, to be replayed.

    What is repeated are the cache and other tensors that the allocator does not serve from its
    small pool. They grow evenly between two lengths that were traced.

    Args:
        trace: Trace of generating.
        most: Maximum number of lengths, evenly spread.

    Returns:
        The same where no cache grows, such as a static one.
    """
    parts = _with_slopes(list(_parts(trace)), trace.sizes)
    grown = sum(part.tokens for part in parts)
    if grown <= 0:  # below zero where sizes are of fewer tokens than any that was traced
        return trace
    stride = -(-grown // most)
    longer = _Longer(trace)
    done = 0
    for part in parts:
        longer.copy(done, part.begin)
        longer.grow(part, part.tokens // stride)
        done = part.end
    longer.copy(done, len(trace.events))
    return longer.trace


def _parts(trace: Trace) -> Iterator[_Part]:
    phases = [*trace.phases, (len(trace.events), "")]
    growth = range(0)
    for (begin, name), (end, _) in pairwise(phases):
        if name == GROWTH:
            growth = range(begin, end)
        elif name.startswith(f"{TOKEN} ") and growth:
            part = _part(trace, growth, trace.events[begin:end])
            if part is not None:
                yield part
            growth = range(0)


def _part(trace: Trace, growth: range, token: Sequence[tuple[int, int]]) -> _Part | None:
    events = [trace.events[index] for index in growth]
    old = [tensor for kind, tensor in events if kind == FREE]
    new = [tensor for kind, tensor in events if kind == ALLOCATE]
    freed = {tensor for kind, tensor in token if kind == FREE}
    concatenated = [
        tensor
        for kind, tensor in token
        if kind == ALLOCATE and tensor not in freed and trace.makers[tensor] == _CONCATENATES
    ]
    if not len(old) == len(new) == len(concatenated):
        return None
    sizes = trace.sizes
    # A window keeps fewer tokens than were read, so the layers without one tell how many more.
    tokens = max(
        (sizes[after] - sizes[before]) // (sizes[and_one] - sizes[after])
        for before, after, and_one in zip(old, new, concatenated, strict=True)
    )
    return _Part(growth.start, growth.stop, old, new, token, concatenated, tokens, {})


def _with_slopes(parts: Sequence[_Part], sizes: Sequence[int]) -> list[_Part]:
    """The parts with their slopes; before the second length, they are those after it."""
    made = [[tensor for kind, tensor in part.token if kind == ALLOCATE] for part in parts]
    found: list[_Part] = []
    for number, part in enumerate(parts):
        other = max(number, 1)
        if other < len(parts) and len(made[other - 1]) == len(made[other]):
            before, after = made[other - 1], made[other]
            tokens = max(parts[other].tokens, 1)
            slopes = [(sizes[b] - sizes[a]) / tokens for a, b in zip(before, after, strict=True)]
            part = replace(part, slopes=dict(zip(made[number], slopes, strict=True)))
        found.append(part)
    return found


class _Longer:
    """A copy of a trace, with events put between.

    Args:
        source: The trace to copy.
    """

    def __init__(self, source: Trace) -> None:
        self._source = source
        self.trace = replace(
            source,
            events=[],
            phases=[],
            sizes=list(source.sizes),
            categories=list(source.categories),
            modules=list(source.modules),
            makers=list(source.makers),
            streams=list(source.streams),
            slopes=[],
        )

    def copy(self, begin: int, end: int) -> None:
        """Copy events of the source, none of them in the middle of what is put between."""
        trace, ahead = self.trace, len(self.trace.events) - begin
        trace.events += self._source.events[begin:end]
        trace.phases += [
            (at + ahead, name) for at, name in self._source.phases if begin <= at < end
        ]
        if begin <= self._source.last_step < end:
            trace.last_step = self._source.last_step + ahead

    def grow(self, part: _Part, count: int) -> None:
        """Read ``count - 1`` tokens before the cache is as long as in a part, then make it that."""
        now = dict(zip(part.new, part.old, strict=True))  # what stands where those of the part do
        for step in range(1, count):
            now = self._read_token(part, now, step / count)
        events = self.trace.events
        events += [
            (kind, now[part.new[part.old.index(tensor)]] if kind == FREE else tensor)
            for kind, tensor in self._source.events[part.begin : part.end]
        ]

    def _read_token(self, part: _Part, now: dict[int, int], share: float) -> dict[int, int]:
        """Read one token; returns what the cache is then."""
        sizes = self._source.sizes
        first = dict(zip(part.new, part.old, strict=True))
        become = dict(zip(part.concatenated, part.new, strict=True))
        made: dict[int, int] = {}
        for kind, tensor in part.token:
            if kind == FREE:
                gone = now.get(tensor) if tensor in now else made.pop(tensor, None)
                if gone is not None:
                    self.trace.events.append((FREE, gone))
            elif tensor in become:
                end = become[tensor]
                begin = sizes[first[end]]
                made[tensor] = self._make(tensor, begin + int((sizes[end] - begin) * share))
            elif sizes[tensor] > SMALL_REQUEST_BYTES:
                made[tensor] = self._make(tensor, part.size(tensor, sizes, share))
        for tensor in made.keys() - become.keys():  # logits, which stay until the next token's
            self.trace.events.append((FREE, made[tensor]))
        return {become[tensor]: copied for tensor, copied in made.items() if tensor in become}

    def _make(self, like: int, size: int) -> int:
        trace = self.trace
        tensor = len(trace.sizes)
        trace.sizes.append(size)
        trace.categories.append(trace.categories[like])
        trace.modules.append(trace.modules[like])
        trace.makers.append(trace.makers[like])
        if trace.streams:
            trace.streams.append(trace.streams[like])
        trace.events.append((ALLOCATE, tensor))
        return tensor
