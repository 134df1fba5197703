"""The trace at every batch size of a step that handles samples one by one, such as images.

With one sample more, such a step does something more in some places, and the same with larger
tensors elsewhere. Comparing the traces at two batch sizes finds these places, and a third one
checks them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar

from ..allocator.caching import ALLOCATE
from .alignment import Labels, NotRepeating, aligned, between
from .built_trace import BuiltTrace, TracePart
from .depth_events import Event, events_alike, phase_of_each, ranks_of
from .every_batch import NotAffine
from .trace import Operation, Trace

Place = tuple[int, int]
"""The number of a trace, the first being 0, and a number of an event or operation in it."""


@dataclass(frozen=True)
class LoopingTrace:
    """The trace at every batch size, where some events come once more for each sample more.

    These are the same for each sample. What comes as often takes ``a + b · batch`` bytes.

    Attributes:
        first, second, third: Traces at three successive batch sizes.

    Raises:
        NotAffine: If the third one is not as the first two would have it.
    """

    rule: ClassVar[str] = "some of them once more for each sample more"

    first: Trace
    second: Trace
    third: Trace

    def __post_init__(self) -> None:
        try:
            given = self.at(self.third.batch_size)
        except NotRepeating as error:
            raise _not_alike(self.first, self.third) from error
        alike = given == self.third and given.operations == self.third.operations
        if not alike or given.host_bytes != self.third.host_bytes:
            raise _not_alike(self.first, self.third)

    # Without the cached properties: they follow from the traces.
    def __getstate__(self) -> dict[str, object]:
        return {"first": self.first, "second": self.second, "third": self.third}

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size, none smaller than the first."""
        more = batch_size - self.first.batch_size
        first, second = self.first, self.second
        return replace(
            self._events.at(more),
            batch_size=batch_size,
            operations=self._work.at(more),
            host_bytes=first.host_bytes + more * (second.host_bytes - first.host_bytes),
        )

    @cached_property
    def _events(self) -> _Events:
        try:
            return _Events(self.first, self.second, _Repeated(self._all, _made))
        except NotRepeating as error:
            raise _not_alike(self.first, self.second) from error

    @cached_property
    def _work(self) -> _Work:
        try:
            return _Work(self.first, self.second, _Repeated(self._all, _done))
        except NotRepeating as error:
            raise _not_alike(self.first, self.second) from error

    @property
    def _all(self) -> Sequence[Trace]:
        return self.first, self.second, self.third


def _not_alike(one: Trace, other: Trace) -> NotAffine:
    return NotAffine(f"the step is not alike at batch {one.batch_size} and {other.batch_size}")


Kind = tuple[Hashable, int | tuple[int, ...]]
"""The kind of a tensor or an operation, without its size, and its size."""


def _made(trace: Trace) -> Iterator[Kind]:
    """Kind and size of each tensor."""
    for phase, (kind, tensor) in zip(phase_of_each(trace), trace.events, strict=True):
        if kind == ALLOCATE:
            stream = trace.streams[tensor] if trace.streams else 0
            told = trace.categories[tensor], trace.modules[tensor], trace.makers[tensor]
            yield (phase, *told, stream), trace.sizes[tensor]


def _done(trace: Trace) -> Iterator[Kind]:
    """Kind and numbers of each operation."""
    return map(_kind, trace.operations)


def _kind(operation: Operation) -> Kind:
    sort = operation.phase, operation.name, operation.dtype, operation.channels_last
    return sort, operation.numbers


class _Repeated:
    """Separates what comes once more for each sample more from what has another size instead.

    Args:
        traces: Traces at three successive batch sizes.
        kinds: Returns the kinds of the tensors or operations of a trace.
    """

    def __init__(self, traces: Sequence[Trace], kinds: Callable[[Trace], Iterable[Kind]]) -> None:
        told = [[*kinds(trace)] for trace in traces]
        # What comes as often is labelled by number, since an unlike size may have the same bytes.
        sorts = [Counter(sort for sort, _ in one) for one in told]
        self._more = {sort for sort in sorts[1] if sorts[1][sort] != sorts[0][sort]}
        first, second, third = (Counter(one) for one in told)
        # A tensor that merely grows may have, at the second batch size, the very size of another
        # one. It does not have it at the third as well: so a kind has to come more often twice.
        self._of_a_sample = {
            kind: second[kind] - first[kind]
            for kind in first
            if third[kind] - second[kind] == second[kind] - first[kind] > 0
        }

    def labels(self, kinds: Sequence[Kind]) -> list[tuple[Any, ...]]:
        """Labels of tensors or operations that hold at every batch size.

        Several in a row that are alike, such as the gradients of queries, keys and values, are
        numbered.
        """
        counts: Counter[Hashable] = Counter()
        labels: list[tuple[Any, ...]] = []
        for kind, alike in groupby(kinds):
            sort, size = kind
            for number, _ in enumerate(alike):
                counts[sort] += 1
                if sort not in self._more:
                    labels.append((sort, counts[sort]))
                elif kind in self._of_a_sample:
                    # By its number among those of one sample, so that each sample's first is like
                    # every other sample's first, however many samples there are.
                    labels.append((sort, size, number % self._of_a_sample[kind]))
                else:  # one for all samples, among others of its sort: it grows, so no size
                    labels.append((sort, None))
        return labels


class _Events:
    """The events at every batch size.

    Args:
        first, second: Traces at two successive batch sizes.
        repeated: The kinds that come once more for each sample more.
    """

    def __init__(self, first: Trace, second: Trace, repeated: _Repeated) -> None:
        self._traces = first, second
        self._events = [_events_of(trace, repeated) for trace in self._traces]
        if [name for _, name in first.phases] != [name for _, name in second.phases]:
            raise NotRepeating("the phases are others")
        self._places = aligned(*([*_labels(events)] for events in self._events))
        self._added = between(self._places, len(self._events[1]))
        ranks = ranks_of(self._events, [self._places])
        self._parts = [
            TracePart(*part) for part in zip(self._traces, self._events, ranks, strict=True)
        ]

    def at(self, more: int) -> Trace:
        """The trace with ``more`` samples more than the first, without its work."""
        built = BuiltTrace(self._parts)
        for index in range(len(self._places) + 1):
            # A whole gap at a time: a sample's events come together, then those of the next one.
            for place in [*self._added.get(index, ())] * more:
                built.take(1, place)
            if index == self._traces[0].last_step:
                built.begin_last_step()
            if index < len(self._places):
                built.take(0, index, more * self._growth(index))
                self._sum(built.trace, index, more)
        return built.trace

    def _sum(self, built: Trace, index: int, more: int) -> None:
        """Give the scratch of a sum, just taken, its size with ``more`` samples more."""
        (kind, tensor), (_, longer) = (
            trace.events[at]
            for trace, at in zip(self._traces, (index, self._places[index]), strict=True)
        )
        one, other = (
            self._traces[0].column_sums.get(tensor),
            self._traces[1].column_sums.get(longer),
        )
        if kind == ALLOCATE and one is not None and other is not None:
            made = len(built.sizes) - 1
            # Its size is not affine in the batch: it follows from the shape of the sum, which is.
            grown = one.grown(other, more)
            built.column_sums[made], built.sizes[made] = grown, grown.scratch_bytes

    def _growth(self, index: int) -> int:
        """Bytes by which the tensor of an event of the first trace grows for each sample more."""
        one, other = (
            trace.sizes[trace.events[at][1]]
            for trace, at in zip(self._traces, (index, self._places[index]), strict=True)
        )
        return other - one


def _events_of(trace: Trace, repeated: _Repeated) -> list[Event]:
    return [*events_alike(trace, repeated.labels([*_made(trace)]))]


def _labels(events: Sequence[Event]) -> Iterator[Labels]:
    """Labels of events, by phases."""
    for _, phase in groupby(events, attrgetter("phase")):
        yield [(event.kind, event.alike) for event in phase]


class _Work:
    """The operations at every batch size; as :class:`_Events`."""

    def __init__(self, first: Trace, second: Trace, repeated: _Repeated) -> None:
        self._first, self._second = first.operations, second.operations
        self._places = aligned(*([*_work_labels(one, repeated)] for one in (first, second)))
        self._added = between(self._places, len(self._second))

    def at(self, more: int) -> list[Operation]:
        work = []
        for index in range(len(self._places) + 1):
            gap = self._added.get(index, range(0))
            work += [self._second[place] for place in gap] * more
            if index < len(self._places):
                one, other = self._first[index].numbers, self._second[self._places[index]].numbers
                grown = tuple(a + more * (b - a) for a, b in zip(one, other, strict=True))
                work.append(self._first[index].with_numbers(grown))
        return work


def _work_labels(trace: Trace, repeated: _Repeated) -> Iterator[Labels]:
    """Labels of operations, by phases."""
    labels = iter(repeated.labels([*_done(trace)]))
    for _, phase in groupby(trace.operations, attrgetter("phase")):
        yield [(len(one.numbers), next(labels)) for one in phase]
