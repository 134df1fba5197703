"""Puts a trace together from events of others: those of a deeper model, or of a larger batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ..allocator.caching import ALLOCATE, FREE
from .alignment import NotRepeating
from .depth_events import Event, Rank
from .trace import Trace

Origin = tuple[int, int]
"""The number of a trace, the shallow one being 0, and a number of a tensor or operation in it."""


_Value = TypeVar("_Value")


def by_origin(known: Iterable[tuple[Origin, _Value]]) -> dict[Origin, _Value]:
    """Values that are known, by origin; raises ``NotRepeating`` where repeats of it differ."""
    found: dict[Origin, _Value] = {}
    for origin, value in known:
        if found.setdefault(origin, value) != value:
            raise NotRepeating("at another batch size, blocks differ from one another")
    return found


@dataclass(frozen=True)
class TracePart:
    """A trace that events are taken from.

    Attributes:
        trace: The trace.
        events: Its events, independent of tensor ids.
        ranks: Ranks of the tensors that they free among equal live ones; ``None`` for allocations.
    """

    trace: Trace
    events: Sequence[Event]
    ranks: Sequence[Rank | None]


class BuiltTrace:
    """A trace that is put together from events of others.

    Args:
        parts: The traces; the first one gives the rest, such as the names of the phases.

    Attributes:
        trace: The trace so far.
        origins: Origin of each of its tensors.
    """

    def __init__(self, parts: Sequence[TracePart]) -> None:
        self._parts = parts
        self.origins: list[Origin] = []
        self.trace = replace(
            parts[0].trace,
            events=[],
            sizes=[],
            categories=[],
            modules=[],
            makers=[],
            phases=[],
            streams=[],
            column_sums={},
        )
        self._alive: dict[Hashable, list[int]] = defaultdict(list)
        self._phase = -1

    def begin_last_step(self) -> None:
        self.trace.last_step = len(self.trace.events)

    def take(self, number: int, index: int, grown: int = 0, module: str | None = None) -> None:
        """Add one event.

        Args:
            number: The part that it comes from.
            index: Its number there.
            grown: Bytes by which its tensor is larger here.
            module: Name of its tensor's module here; ``None`` where it is the same.
        """
        part, trace = self._parts[number], self.trace
        event, rank = part.events[index], part.ranks[index]
        # Several phases may begin at once: one without events still has its entry.
        while self._phase < event.phase:
            self._phase += 1
            name = self._parts[0].trace.phases[self._phase][1]
            trace.phases.append((len(trace.events), name))
        like = self._alive[event.alike]
        if rank is not None:
            # Tensor ids of different traces do not compare, so a free finds its tensor among the
            # equal ones that are alive here, by its rank.
            trace.events.append((FREE, like.pop(rank.index(len(like)))))
            return
        source = part.trace
        of, tensor = source.events[index][1], len(trace.sizes)
        self.origins.append((number, of))
        like.append(tensor)
        trace.events.append((ALLOCATE, tensor))
        trace.sizes.append(source.sizes[of] + grown)
        if of in source.column_sums:
            trace.column_sums[tensor] = source.column_sums[of]
        trace.categories.append(source.categories[of])
        trace.modules.append(source.modules[of] if module is None else module)
        trace.makers.append(source.makers[of])
        if source.streams:
            trace.streams.append(source.streams[of])
