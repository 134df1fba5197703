"""The trace of a deep model from those of shallow ones.

A step of a model with one block more does the same, and in some places more: what that block does
in the forward pass, in the backward pass and in the optimizer. Comparing two traces finds these
places. So the trace with any number of blocks is that of the shallowest model, with what one block
does added as often as there are blocks more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from ..allocator.caching import ALLOCATE, FREE
from .alignment import Labels, NotRepeating, aligned, between
from .blocks import Run
from .depth_events import Event, Moved, Rank, events_of, made_over_all, ranks_of
from .depth_work import Origin, Work, numbers_there, work_at
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
        self._ranks = ranks_of(self._events, places)

    def _places(self, number: int) -> list[int]:
        """Places of the shallow trace's events in that with one repeat more of a run."""
        run = self._runs[number]

        def moved(of: int, block: int) -> int:
            later = of == number and block >= run.gap(self._margin)
            return block + run.period if later else block

        def labels(events: Sequence[Event], moved: Moved) -> list[Labels]:
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

    def at_batch_of(self, other: Trace, repeats: Sequence[int]) -> Trace:
        """The trace with these repeats at another batch size, which needs one trace there.

        Args:
            other: The trace there with one repeat more of each run than the shallowest.
            repeats: As in :meth:`at`.

        Raises:
            NotRepeating: If it differs in more than the sizes of tensors and of the work on them.
        """
        one_more = [run.shallowest(self._margin) + 1 for run in self._runs]
        alike, work = self._put_together(one_more)
        sized = replace(
            alike.trace,
            batch_size=other.batch_size,
            sizes=other.sizes,
            column_sums=other.column_sums,
        )
        if sized != other or alike.trace.column_sums.keys() != other.column_sums.keys():
            raise NotRepeating("at another batch size, a step does something else")
        sizes = dict(zip(alike.origins, other.sizes, strict=True))
        sums = {alike.origins[tensor]: each for tensor, each in other.column_sums.items()}
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
            host_bytes=(self._host_bytes(repeats) + other.host_bytes - self._host_bytes(one_more)),
        )

    def _put_together(self, repeats: Sequence[int]) -> tuple[_Built, list[Work]]:
        """The events with these repeats, and the work of the last step."""
        more = [
            count - run.shallowest(self._margin)
            for run, count in zip(self._runs, repeats, strict=True)
        ]
        built = _Built(self._traces[0], self._runs, self._margin, more, self._growing)
        for index in range(len(self._events[0]) + 1):
            for number, gaps in enumerate(self._added):
                self._add(built, number, gaps.get(index, range(0)))
            if index == self._traces[0].last_step:
                built.begin_last_step()
            if index < len(self._events[0]):
                self._take(built, 0, index)
        shallow, *deeper = (trace.operations for trace in self._traces)
        return built, work_at(shallow, deeper, more)

    def _add(self, built: _Built, number: int, gap: range) -> None:
        """Add the events of one block in one place, once for each repeat more."""
        for copy in range(built.more[number]):
            for index in gap:
                self._take(built, 1 + number, index, (number, copy))

    def _take(
        self, built: _Built, number: int, index: int, copy: tuple[int, int] | None = None
    ) -> None:
        event, rank = self._events[number][index], self._ranks[number][index]
        built.take(self._traces[number], index, event, rank, copy)


def _unmoved(_run: int, block: int) -> int:
    return block


class _Built:
    """A trace that is put together from events of others.

    Args:
        shallow: The trace of what does not depend on depth.
        runs: The runs of the model.
        margin: As in :meth:`~.blocks.Run.shallowest`.
        more: Number of repeats more of each in the trace.
        growing: Growth of tensors of the shallow trace for a repeat more of each run.

    Attributes:
        trace: The trace so far.
        origins: Origin of each of its tensors.
    """

    def __init__(
        self,
        shallow: Trace,
        runs: Sequence[Run],
        margin: int,
        more: Sequence[int],
        growing: Mapping[int, list[int]],
    ) -> None:
        self.more = more
        self._growing = growing
        self.origins: list[Origin] = []
        self._margin = margin
        self.trace = replace(
            shallow,
            events=[],
            sizes=[],
            categories=[],
            modules=[],
            makers=[],
            phases=[],
            streams=[],
            column_sums={},
        )
        self._shallow, self._runs = shallow, runs
        self._alive: dict[Hashable, list[int]] = defaultdict(list)
        self._phase = -1

    def begin_last_step(self) -> None:
        self.trace.last_step = len(self.trace.events)

    def take(
        self,
        source: Trace,
        index: int,
        event: Event,
        rank: Rank | None,
        copy: tuple[int, int] | None,
    ) -> None:
        """Add one event.

        Args:
            source: The trace it comes from.
            index: Its number there.
            event: The event.
            rank: The rank of the tensor that it frees among equal ones, if it frees one.
            copy: The run and the number of the added repeat that it belongs to, if any.
        """
        trace = self.trace
        while self._phase < event.phase:
            self._phase += 1
            trace.phases.append((len(trace.events), self._shallow.phases[self._phase][1]))
        like = self._alive[event.alike]
        if rank is not None:
            trace.events.append((FREE, like.pop(rank.index(len(like)))))
            return
        of, tensor = source.events[index][1], len(trace.sizes)
        self.origins.append((0 if copy is None else 1 + copy[0], of))
        like.append(tensor)
        trace.events.append((ALLOCATE, tensor))
        added = self._growing.get(of, ()) if copy is None else ()
        grown = sum(count * size for count, size in zip(self.more, added, strict=False))
        trace.sizes.append(source.sizes[of] + grown)
        if of in source.column_sums:
            trace.column_sums[tensor] = source.column_sums[of]
        trace.categories.append(source.categories[of])
        trace.modules.append(self._name(source.modules[of], event, copy))
        trace.makers.append(source.makers[of])
        if source.streams:
            trace.streams.append(source.streams[of])

    def _name(self, module: str, event: Event, copy: tuple[int, int] | None) -> str:
        """The name of a tensor's module in the deep model."""
        if event.run < 0:
            return module
        run = self._runs[event.run]
        more = self.more[event.run]
        block = event.block
        gap = run.gap(self._margin)
        if copy is None or copy[0] != event.run:
            block += run.period * more if block >= gap else 0
        elif block >= gap + run.period:
            block += run.period * (more - 1)
        elif block >= gap:
            is_backward = self._shallow.phases[event.phase][1] == _BACKWARD
            block += run.period * (more - 1 - copy[1] if is_backward else copy[1])
        begin = len(run.name) + 1
        _, dot, rest = module[begin:].partition(".")
        return f"{module[:begin]}{block}{dot}{rest}"
