"""The trace of a deep model from those of shallow ones.

A step of a model with one block more does the same, and in some places more: what that block does
in the forward pass, in the backward pass and in the optimizer. Comparing two traces finds these
places. So the trace with any number of blocks is that of the shallowest model, with what one block
does added as often as there are blocks more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from ..allocator.caching import ALLOCATE, FREE
from .alignment import Labels, NotRepeating, aligned, between
from .blocks import Run
from .depth_work import Origin, Work, numbers_there, work_at
from .trace import Trace

_BACKWARD = "backward"  # goes from the last block to the first

_Moved = Callable[[int, int], int]
"""The number of a block among more blocks, given its run and its number."""

_Ranks = dict[tuple[int, Hashable], "_Rank"]
"""By the number of the phase, and by what a tensor has in common with its like."""


@dataclass(frozen=True)
class _Rank:
    """Which one of the like tensors that are alive is meant, counted from one end."""

    place: int
    from_last: bool

    def index(self, alive: int) -> int:
        index = alive - 1 - self.place if self.from_last else self.place
        if not 0 <= index < alive:
            raise NotRepeating("the step with more blocks frees a tensor that it has not made")
        return index


@dataclass(frozen=True)
class _Event:
    """An event of a trace, told without the numbers of tensors.

    Attributes:
        phase: The number of its phase in the trace.
        alike: What it has in common with the like event of another block: its sort, its size,
            its phase and its place among those of its module.
        run, block: The run and the number of the block whose tensor it is; -1 outside of runs.
        first, last: Of a free, how many like tensors alive are older, and younger.
    """

    kind: int
    phase: int
    alike: tuple[Any, ...]
    run: int
    block: int
    first: int = 0
    last: int = 0

    def label(self, moved: _Moved) -> Hashable:
        """What it is, with the block's number as ``moved`` gives it for the run and number.

        A block may free what its neighbour made, which is another one where there are more.
        """
        block = moved(self.run, self.block) if self.kind == ALLOCATE else -1
        return self.kind, self.alike, block


def _events(trace: Trace, runs: Sequence[Run], over_all: Set[Hashable]) -> Iterator[_Event]:
    """The events of a trace, told without the numbers of tensors.

    Args:
        trace: Of a model.
        runs: Of the model.
        over_all: What is made for all blocks at once, by :func:`_over_all`.
    """

    @cache
    def place(module: str) -> tuple[str, int, int]:
        for index, run in enumerate(runs):
            if module.startswith(f"{run.name}."):
                number, _, rest = module.removeprefix(f"{run.name}.").partition(".")
                return rest, index, int(number)
        return module, -1, -1

    alive: dict[Hashable, list[int]] = defaultdict(list)
    made: Counter[Hashable] = Counter()
    kinds: list[tuple[Any, ...]] = []
    phases = [begin for begin, _ in trace.phases]
    phase = -1
    for index, (kind, tensor) in enumerate(trace.events):
        while phase + 1 < len(phases) and phases[phase + 1] <= index:
            phase += 1
        module, maker = trace.modules[tensor], trace.makers[tensor]
        part, run, block = place(module)
        if kind == ALLOCATE:
            made[phase, module, maker] += 1
            # What is made around the blocks comes more often the more of these there are.
            around = any(f"{one.name}.".startswith(f"{module}.") for one in runs) or not module
            order = 0 if around else made[phase, module, maker]
            stream = trace.streams[tensor] if trace.streams else 0
            sort = (trace.categories[tensor], part, run, maker, stream)
            size = -1 if (phase, *sort) in over_all else trace.sizes[tensor]
            kinds.append((*sort, size, phase, order))
            alive[kinds[tensor]].append(tensor)
            yield _Event(kind, phase, kinds[tensor], run, block)
        else:
            like = alive[kinds[tensor]]
            at = like.index(tensor)
            yield _Event(kind, phase, kinds[tensor], run, block, at, len(like) - 1 - at)
            del like[at]


def _over_all(traces: Sequence[Sequence[_Event]]) -> Set[Hashable]:
    """What is made for all blocks at once, such as by FSDP, which gathers a group in one piece.

    It is made outside of the blocks, as often in each trace, and with other sizes.
    """
    sizes: dict[Hashable, set[tuple[int, ...]]] = defaultdict(set)
    for events in traces:
        there: dict[Hashable, list[int]] = defaultdict(list)
        for event in events:
            if event.kind == ALLOCATE and event.run < 0:
                there[event.phase, *event.alike[:-3]].append(event.alike[-3])
        for alike, made in there.items():
            sizes[alike].add(tuple(made))
    return {
        alike for alike, found in sizes.items() if len(found) > 1 and len({*map(len, found)}) == 1
    }


def _ranks(traces: Sequence[Sequence[_Event]]) -> _Ranks:
    """Which of the like tensors alive is freed in a phase, where that is the same one throughout.

    Where it is neither, a comparison with a deeper trace shows it.
    """
    found: dict[tuple[int, Hashable], set[tuple[int, int]]] = defaultdict(set)
    for events in traces:
        for event in events:
            if event.kind == FREE:
                found[event.phase, event.alike].add((event.first, event.last))
    ranks = {}
    for key, places in found.items():
        first, last = min(places)
        if len({place for _, place in places}) == 1:
            ranks[key] = _Rank(last, True)
        elif len({place for place, _ in places}) == 1:
            ranks[key] = _Rank(first, False)
    return ranks


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
        events = [list(_events(trace, runs, frozenset())) for trace in self._traces]
        if over_all := _over_all(events):
            events = [list(_events(trace, runs, over_all)) for trace in self._traces]
        self._events = events
        if len({tuple(name for _, name in trace.phases) for trace in self._traces}) > 1:
            raise NotRepeating("a step with more blocks has other phases")
        places = [self._places(number) for number in range(len(runs))]
        self._added = [
            between(there, len(events))
            for there, events in zip(places, self._events[1:], strict=True)
        ]
        self._growing = self._find_growing(places)
        self._ranks = _ranks(self._events)

    def _places(self, number: int) -> list[int]:
        """Where the shallow trace's events stand in that with one repeat more of a run."""
        run = self._runs[number]

        def moved(of: int, block: int) -> int:
            later = of == number and block >= run.gap(self._margin)
            return block + run.period if later else block

        def labels(events: Sequence[_Event], moved: _Moved) -> list[Labels]:
            phases = groupby(events, attrgetter("phase"))
            return [[event.label(moved) for event in one] for _, one in phases]

        shallow, deeper = self._events[0], self._events[1 + number]
        return aligned(labels(shallow, moved), labels(deeper, _unmoved))

    def _find_growing(self, places: Sequence[Sequence[int]]) -> Mapping[int, list[int]]:
        """By the shallow trace's tensors, how much larger each is for a repeat more of each run.

        Args:
            places: By :meth:`_places`, of each run.
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
        """The trace with so many repeats of each run, none fewer than the shallowest.

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
        """What is on the host: each repeat puts as much there."""
        shallow, *deeper = (trace.host_bytes for trace in self._traces)
        added = (
            (one - shallow) * (count - run.shallowest(self._margin))
            for one, count, run in zip(deeper, repeats, self._runs, strict=True)
        )
        return shallow + sum(added)

    def at_batch_of(self, other: Trace, repeats: Sequence[int]) -> Trace:
        """The trace with so many repeats at another batch size, which needs one trace there.

        Args:
            other: That with one repeat more of each run than the shallowest.
            repeats: As in :meth:`at`.

        Raises:
            NotRepeating: If it differs in more than the sizes of tensors and of the work on them.
        """
        one_more = [run.shallowest(self._margin) + 1 for run in self._runs]
        alike, work = self._put_together(one_more)
        if replace(alike.trace, batch_size=other.batch_size, sizes=other.sizes) != other:
            raise NotRepeating("at another batch size, a step does something else")
        sizes = dict(zip(alike.origins, other.sizes, strict=True))
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
            operations=[
                one.operation.with_numbers(numbers.get(one.origin, one.operation.numbers))
                for one in work
            ],
            host_bytes=(self._host_bytes(repeats) + other.host_bytes - self._host_bytes(one_more)),
        )

    def _put_together(self, repeats: Sequence[int]) -> tuple[_Built, list[Work]]:
        """The events with so many repeats, and the work of the last step."""
        more = [
            count - run.shallowest(self._margin)
            for run, count in zip(self._runs, repeats, strict=True)
        ]
        built = _Built(self._traces[0], self._runs, self._margin, more, self._ranks, self._growing)
        for index in range(len(self._events[0]) + 1):
            for number, gaps in enumerate(self._added):
                self._add(built, number, gaps.get(index, range(0)))
            if index == self._traces[0].last_step:
                built.begin_last_step()
            if index < len(self._events[0]):
                built.take(self._traces[0], index, self._events[0][index])
        shallow, *deeper = (trace.operations for trace in self._traces)
        return built, work_at(shallow, deeper, more)

    def _add(self, built: _Built, number: int, gap: range) -> None:
        """What one block adds in one place, as often as there are more."""
        trace, events = self._traces[1 + number], self._events[1 + number]
        for copy in range(built.more[number]):
            for index in gap:
                built.take(trace, index, events[index], (number, copy))


def _unmoved(_run: int, block: int) -> int:
    return block


class _Built:
    """A trace that is put together from events of others.

    Args:
        shallow: Gives what does not depend on depth.
        runs: Of the model.
        margin: As in :meth:`~.blocks.Run.shallowest`.
        more: How many repeats more of each the trace has.
        ranks: By :func:`_ranks`.
        growing: How much larger tensors of the shallow trace are for a repeat more of each run.

    Attributes:
        trace: What there is so far.
        origins: Where each of its tensors comes from.
    """

    def __init__(
        self,
        shallow: Trace,
        runs: Sequence[Run],
        margin: int,
        more: Sequence[int],
        ranks: _Ranks,
        growing: Mapping[int, list[int]],
    ) -> None:
        self.more = more
        self._growing = growing
        self.origins: list[Origin] = []
        self._margin = margin
        self._ranks = ranks
        self.trace = replace(
            shallow,
            events=[],
            sizes=[],
            categories=[],
            modules=[],
            makers=[],
            phases=[],
            streams=[],
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
        event: _Event,
        copy: tuple[int, int] | None = None,
    ) -> None:
        """Add one event.

        Args:
            source: The trace it comes from.
            index: Its number there.
            event: What it is.
            copy: Of which run it is one of the repeats more, and which of them.
        """
        trace = self.trace
        while self._phase < event.phase:
            self._phase += 1
            trace.phases.append((len(trace.events), self._shallow.phases[self._phase][1]))
        like = self._alive[event.alike]
        if event.kind == FREE:
            rank = self._ranks.get((event.phase, event.alike)) or _Rank(event.last, True)
            trace.events.append((FREE, like.pop(rank.index(len(like)))))
            return
        of, tensor = source.events[index][1], len(trace.sizes)
        self.origins.append((0 if copy is None else 1 + copy[0], of))
        like.append(tensor)
        trace.events.append((ALLOCATE, tensor))
        added = self._growing.get(of, ()) if copy is None else ()
        grown = sum(count * size for count, size in zip(self.more, added, strict=False))
        trace.sizes.append(source.sizes[of] + grown)
        trace.categories.append(source.categories[of])
        trace.modules.append(self._name(source.modules[of], event, copy))
        trace.makers.append(source.makers[of])
        if source.streams:
            trace.streams.append(source.streams[of])

    def _name(self, module: str, event: _Event, copy: tuple[int, int] | None) -> str:
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
