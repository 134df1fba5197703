"""Parts of a trace that is being recorded: all until now, or what may come again."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise
from operator import itemgetter

from ..allocator.caching import ALLOCATE, FREE
from .column_sums import ColumnSum
from .trace import Category, Operation, Trace

Events = list[tuple[int, int]]


def snapshot(trace: Trace) -> Trace:
    """A copy of what has been recorded until now, to which nothing is added."""
    return replace(trace, **{part.name: copy(getattr(trace, part.name)) for part in fields(trace)})


@dataclass(frozen=True)
class Moment:
    """A moment while a trace is recorded.

    Attributes:
        events: Number of events until then.
        tensors: Number of tensors made until then.
        operations: Number of operations run until then.
    """

    events: int
    tensors: int
    operations: int

    @classmethod
    def now(cls, trace: Trace) -> Moment:
        """The latest moment of a trace."""
        return cls(len(trace.events), len(trace.sizes), len(trace.operations))


@dataclass(frozen=True)
class Excerpt:
    """The record between two moments, its tensors counted from the first that it made.

    Attributes:
        events: As in a :class:`~engine.tracing.trace.Trace`.
        phases: Each begins at one of its events, the first one at the first.
        sizes, categories, modules, makers, streams: Facts of its tensors.
        column_sums: The sums whose scratch some of its tensors are.
        operations: Its work.
        kept: The tensor that it leaves behind.
        peak_bytes: The most that its tensors take at once.
    """

    events: Events
    phases: list[tuple[int, str]]
    sizes: list[int]
    categories: list[Category]
    modules: list[str]
    makers: list[str]
    streams: list[int]
    column_sums: dict[int, ColumnSum]
    operations: list[Operation]
    kept: int
    peak_bytes: int

    @classmethod
    def since(cls, begin: Moment, trace: Trace, kept: int | None) -> Excerpt | None:
        """The record since a moment.

        Args:
            begin: The moment.
            trace: The trace being recorded.
            kept: The tensor that it leaves behind.

        Returns:
            ``None`` if it frees what was made before, or leaves more behind than that tensor: the
            next time would not be like it.
        """
        made = set(range(begin.tensors, len(trace.sizes)))
        events = trace.events[begin.events :]
        freed = {tensor for kind, tensor in events if kind == FREE}
        if kept not in made or freed != made - {kept}:
            return None
        sizes = trace.sizes[begin.tensors :]
        return cls(
            events=[(kind, tensor - begin.tensors) for kind, tensor in events],
            phases=list(_phases(trace, begin.events)),
            sizes=sizes,
            categories=trace.categories[begin.tensors :],
            modules=trace.modules[begin.tensors :],
            makers=trace.makers[begin.tensors :],
            streams=trace.streams[begin.tensors :],
            column_sums={
                tensor - begin.tensors: each
                for tensor, each in trace.column_sums.items()
                if tensor in made
            },
            operations=trace.operations[begin.operations :],
            kept=kept - begin.tensors,
            peak_bytes=_peak(events, trace.sizes),
        )

    def is_like(self, other: Excerpt) -> bool:
        """Whether both come to the same trace, where frees without allocations between are one."""
        return (
            self.phases == other.phases
            and self.sizes == other.sizes
            and self.categories == other.categories
            and self.modules == other.modules
            and self.makers == other.makers
            and self.streams == other.streams
            and self.column_sums == other.column_sums
            and self.operations == other.operations
            and self.kept == other.kept
            and self._in_order() == other._in_order()
        )

    def _in_order(self) -> Events:
        begins = [begin for begin, _ in self.phases]
        return [
            event
            for begin, end in pairwise([*begins, len(self.events)])
            for event in frees_in_order(self.events[begin:end])
        ]

    def repeat(self, trace: Trace) -> int:
        """Record all of it once more.

        Args:
            trace: The trace being recorded.

        Returns:
            The tensor that it leaves behind.
        """
        now = Moment.now(trace)
        for begin, phase in self.phases:
            if not trace.phases or trace.phases[-1][1] != phase:
                trace.phases.append((now.events + begin, phase))
        trace.events += [(kind, now.tensors + tensor) for kind, tensor in self.events]
        trace.sizes += self.sizes
        trace.categories += self.categories
        trace.modules += self.modules
        trace.makers += self.makers
        trace.streams += self.streams
        for tensor, each in self.column_sums.items():
            trace.column_sums[now.tensors + tensor] = each
        trace.operations += self.operations
        return now.tensors + self.kept


def left_since(begin: Moment, trace: Trace) -> set[int] | None:
    """Tensors made since a moment and not freed; ``None`` if any from before was freed."""
    freed = {tensor for kind, tensor in trace.events[begin.events :] if kind == FREE}
    if min(freed, default=begin.tensors) < begin.tensors:
        return None
    return set(range(begin.tensors, len(trace.sizes))) - freed


def apart_from(trace: Trace) -> Trace:
    """A record of its own, that knows the tensors of a trace and makes others."""
    known = ("sizes", "categories", "modules", "makers", "streams")
    return Trace(trace.batch_size, **{name: copy(getattr(trace, name)) for name in known})


def freed_of_before(part: Trace, made: int) -> list[int]:
    """Tensors that a record of its own freed, of those of the trace that it is apart from."""
    return [tensor for kind, tensor in part.events if kind == FREE and tensor < made]


def insert(part: Trace, begin: Moment, trace: Trace, at: Moment) -> int:
    """Put what was recorded by itself, and leaves nothing behind, into a trace.

    Args:
        part: The record.
        begin: The moment from which on it counts: tensors from before are there already.
        trace: The trace being recorded.
        at: The moment at which it comes.

    Returns:
        The most bytes that it takes at once.
    """
    events = [event for event in part.events[begin.events :] if event[1] >= begin.tensors]
    freed = {tensor for kind, tensor in events if kind == FREE}
    left = set(range(begin.tensors, len(part.sizes))) - freed
    events += [(FREE, tensor) for tensor in sorted(left)]
    more = len(trace.sizes) - begin.tensors
    trace.events[at.events : at.events] = [(kind, tensor + more) for kind, tensor in events]
    trace.phases = [
        (index + len(events) if index > at.events else index, phase)
        for index, phase in trace.phases
    ]
    for name in ("sizes", "categories", "modules", "makers", "streams"):
        getattr(trace, name).extend(getattr(part, name)[begin.tensors :])
    for tensor, each in part.column_sums.items():
        trace.column_sums[tensor + more] = each
    return _peak(events, part.sizes)


def _phases(trace: Trace, begin: int) -> Iterator[tuple[int, str]]:
    """The phases from an event on, that one's own first."""
    later = [(index - begin, phase) for index, phase in trace.phases if index > begin]
    first = [phase for index, phase in trace.phases if index <= begin][-1:]
    yield from [(0, phase) for phase in first]
    yield from later


def _peak(events: Events, sizes: list[int]) -> int:
    live = peak = 0
    for kind, tensor in events:
        live += sizes[tensor] if kind == ALLOCATE else -sizes[tensor]
        peak = max(peak, live)
    return peak


def frees_in_order(events: Events) -> Events:
    """The events, each run of frees sorted by tensor."""
    return [
        event
        for kind, run in groupby(events, key=itemgetter(0))
        for event in (sorted(run) if kind == FREE else run)
    ]
