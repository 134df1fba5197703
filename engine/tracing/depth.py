"""The trace of a deep model from those of shallow ones.

A step of a model with one block more does the same, and in some places more: what that block does
in the forward pass, in the backward pass and in the optimizer. Comparing two traces finds these
places. So the trace with any number of blocks is that of the shallowest model, with what one block
does added as often as there are blocks more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product
from operator import attrgetter, itemgetter

from ..allocator.caching import ALLOCATE, FREE
from .alignment import Labels, NotRepeating, aligned, between
from .blocks import Run
from .built_trace import BuiltTrace, TracePart, by_origin
from .depth_events import Event, Moved, events_of, made_over_all, ranks_of
from .depth_work import Work, numbers_there, work_at
from .trace import Trace

_BACKWARD = "backward"  # goes from the last block to the first


class DeepTrace:
    """The trace of a model at any number of repeats of its runs.

    Args:
        runs: The runs of the model.
        margin: As in :meth:`~.blocks.Run.shallowest`.
        shallow: The trace with the fewest repeats.
        deeper: For each run, the trace with one repeat more of that run alone.

    Raises:
        NotRepeating: If a deeper one is not the shallow one with something added.
    """

    def __init__(
        self, runs: Sequence[Run], margin: int, shallow: Trace, deeper: Sequence[Trace]
    ) -> None:
        self._runs, self._margin = runs, margin
        self._traces = [shallow, *deeper]
        events = [list(events_of(trace, runs, frozenset())) for trace in self._traces]
        # What is made for all blocks at once has another size in each trace, and would equal
        # nothing: once it is known, events are labelled anew without these sizes.
        if over_all := made_over_all(events):
            events = [list(events_of(trace, runs, over_all)) for trace in self._traces]
        self._events = events
        if len({tuple(name for _, name in trace.phases) for trace in self._traces}) > 1:
            raise NotRepeating("a step with more blocks has other phases")
        places = [self._places(number) for number in range(len(runs))]
        self._added = [
            between(there, len(events))
            for there, events in zip(places, self._events[1:], strict=True)
        ]
        self._growing = self._find_growing(places)
        ranks = ranks_of(self._events, places)
        self._parts = [
            TracePart(*part) for part in zip(self._traces, self._events, ranks, strict=True)
        ]

    def _places(self, number: int) -> list[int]:
        """Places of the shallow trace's events in that with one repeat more of a run."""
        run = self._runs[number]

        # The added repeat stands in the gap, so the blocks after that are one period further there.
        def moved(of: int, block: int) -> int:
            later = of == number and block >= run.gap(self._margin)
            return block + run.period if later else block

        def labels(events: Sequence[Event], moved: Moved) -> list[Labels]:
            # Phase by phase: a block adds to its own phase, never across the end of one.
            phases = groupby(events, attrgetter("phase"))
            return [[event.label(moved) for event in one] for _, one in phases]

        shallow, deeper = self._events[0], self._events[1 + number]
        return aligned(labels(shallow, moved), labels(deeper, _unmoved))

    def _find_growing(self, places: Sequence[Sequence[int]]) -> Mapping[int, list[int]]:
        """Growth of each of the shallow trace's tensors for a repeat more of each run.

        Args:
            places: Places of each run, by :meth:`_places`.
        """
        shallow, *deeper = self._traces
        growing = {}
        for index, (kind, tensor) in enumerate(shallow.events):
            if kind == ALLOCATE:
                more = [
                    trace.sizes[trace.events[there[index]][1]] - shallow.sizes[tensor]
                    for there, trace in zip(places, deeper, strict=True)
                ]
                if any(more):
                    growing[tensor] = more
        return growing

    def at(self, repeats: Sequence[int]) -> Trace:
        """The trace with these repeats of each run, none fewer than the shallowest.

        Raises:
            NotRepeating: If what is added does not fit together.
        """
        built, work = self._put_together(repeats)
        return replace(
            built.trace,
            operations=[one.operation for one in work],
            host_bytes=self._host_bytes(repeats),
        )

    def _host_bytes(self, repeats: Sequence[int]) -> int:
        """Bytes on the host: each repeat puts as much there."""
        shallow, *deeper = (trace.host_bytes for trace in self._traces)
        added = (
            (one - shallow) * (count - run.shallowest(self._margin))
            for one, count, run in zip(deeper, repeats, self._runs, strict=True)
        )
        return shallow + sum(added)

    def at_batch_of(self, other: Trace, there: Sequence[int], repeats: Sequence[int]) -> Trace:
        """The trace with these repeats at another batch size, which needs one trace there.

        Args:
            other: The trace there.
            there: Its repeats, each more than the shallowest.
            repeats: As in :meth:`at`.

        Raises:
            NotRepeating: If it differs in more than the sizes of tensors and of the work on them,
                or in these between repeats.
        """
        # A trace of one repeat more of each run, or of several, has every origin in it: each tensor
        # of the shallow trace, and each that a block adds. So one trace at the other batch size
        # gives all sizes there, while the shallowest would lack those of added blocks.
        alike, work = self._put_together(there)
        sized = replace(
            alike.trace,
            batch_size=other.batch_size,
            sizes=other.sizes,
            column_sums=other.column_sums,
        )
        # With its sizes put in, all that is left to differ is the order, the frees and the names.
        is_alike = _settled(sized) == _settled(other)
        if not is_alike or alike.trace.column_sums.keys() != other.column_sums.keys():
            raise NotRepeating("at another batch size, a step does something else")
        sizes = by_origin(zip(alike.origins, other.sizes, strict=True))
        sums = by_origin((alike.origins[one], each) for one, each in other.column_sums.items())
        # What grows with depth has a size for the repeats there, not for these, and nothing
        # says how its growth depends on the batch: it is used only where it does not.
        growing = {(0, tensor) for tensor in self._growing}
        if any(
            origin in growing and size != sizes[origin]
            for origin, size in zip(alike.origins, alike.trace.sizes, strict=True)
        ):
            raise NotRepeating("at another batch size, what is made for all blocks is larger")
        numbers = numbers_there(work, other.operations)
        built, work = self._put_together(repeats)
        return replace(
            built.trace,
            batch_size=other.batch_size,
            sizes=[
                size if origin in growing else sizes[origin]
                for origin, size in zip(built.origins, built.trace.sizes, strict=True)
            ],
            column_sums={tensor: sums[built.origins[tensor]] for tensor in built.trace.column_sums},
            operations=[
                one.operation.with_numbers(numbers.get(one.origin, one.operation.numbers))
                for one in work
            ],
            host_bytes=(self._host_bytes(repeats) + other.host_bytes - self._host_bytes(there)),
        )

    def _put_together(self, repeats: Sequence[int]) -> tuple[BuiltTrace, list[Work]]:
        """The events with these repeats, and the work of the last step."""
        more = [
            count - run.shallowest(self._margin)
            for run, count in zip(self._runs, repeats, strict=True)
        ]
        built = BuiltTrace(self._parts)
        # One place more than there are events: blocks may also add something after the last one.
        for index in range(len(self._events[0]) + 1):
            # What blocks add precedes the event that follows it, also where that begins the last
            # step: additions there still belong to the step before.
            for number, gaps in enumerate(self._added):
                for copy, place in product(range(more[number]), gaps.get(index, ())):
                    name = self._name(1 + number, place, more, (number, copy))
                    built.take(1 + number, place, module=name)
            if index == self._traces[0].last_step:
                built.begin_last_step()
            if index < len(self._events[0]):
                built.take(0, index, self._grown(index, more), self._name(0, index, more))
        shallow, *deeper = (trace.operations for trace in self._traces)
        return built, work_at(shallow, deeper, more)

    def _grown(self, index: int, more: Sequence[int]) -> int:
        """Bytes by which the tensor of an event of the shallow trace is larger in the deep one."""
        growth = self._growing.get(self._traces[0].events[index][1])
        return sum(count * size for count, size in zip(more, growth, strict=True)) if growth else 0

    def _name(
        self, number: int, index: int, more: Sequence[int], copy: tuple[int, int] | None = None
    ) -> str:
        """The name of the module of an event's tensor in the deep model.

        Args:
            number: The trace that the event comes from.
            index: Its number there.
            more: Number of repeats more of each run.
            copy: The run and the number of the added repeat that it belongs to, if any.
        """
        event, trace = self._events[number][index], self._traces[number]
        module = trace.modules[trace.events[index][1]]
        if event.run < 0:
            return module
        run, block = self._runs[event.run], event.block
        gap, added = run.gap(self._margin), more[event.run]
        if copy is None or copy[0] != event.run:
            # Of a trace in which this run is as short as possible: blocks after the gap move up.
            block += run.period * added if block >= gap else 0
        elif block >= gap + run.period:
            # Of a trace that has one repeat more of this run itself, which is not to count twice.
            block += run.period * (added - 1)
        elif block >= gap:
            # The added repeat. The forward pass runs the copies from the first to the last, and
            # the backward pass from the last to the first: so the first copy to come is the last
            # block there, and numbers go down.
            is_backward = self._traces[0].phases[event.phase][1] == _BACKWARD
            block += run.period * (added - 1 - copy[1] if is_backward else copy[1])
        begin = len(run.name) + 1
        _, dot, rest = module[begin:].partition(".")
        return f"{module[:begin]}{block}{dot}{rest}"


def check_alike(given: Trace, traced: Trace) -> None:
    """Check that two traces say the same, but for the order of what is freed at once."""
    if _settled(given) != _settled(traced) or given.operations != traced.operations:
        raise NotRepeating("with still more blocks, a step does something else")


def _settled(trace: Trace) -> Trace:
    """A trace with the events in order by the tensors' numbers where nothing is allocated between.

    An encoder's layers may end up in another order than a decoder's where both are let go of, which
    the caching allocator cannot notice: free blocks grow together whichever comes first.
    """
    events: list[tuple[int, int]] = []
    for kind, run in groupby(trace.events, itemgetter(0)):
        some = list(run)
        events += sorted(some) if kind == FREE else some
    return replace(trace, events=events)


def _unmoved(_run: int, block: int) -> int:
    return block
