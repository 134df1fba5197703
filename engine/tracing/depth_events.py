"""The events of a trace without the numbers of its tensors, to compare those of two."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, repeat
from typing import Any

from ..allocator.caching import ALLOCATE, FREE
from .alignment import NotRepeating
from .blocks import Run
from .trace import Trace

Moved = Callable[[int, int], int]
"""The number of a block among more blocks, given its run and its number."""

Key = tuple[int, Hashable]
"""The number of a phase, and the traits that a tensor shares with equal ones."""


@dataclass(frozen=True)
class Rank:
    """Index of a tensor among the equal ones that are alive, counted from one end."""

    place: int
    from_last: bool

    def index(self, alive: int) -> int:
        index = alive - 1 - self.place if self.from_last else self.place
        if not 0 <= index < alive:
            raise NotRepeating("the step with more blocks frees a tensor that it has not made")
        return index


@dataclass(frozen=True)
class Event:
    """An event of a trace, independent of tensor ids.

    Attributes:
        phase: The number of its phase in the trace.
        alike: The traits that it shares with the equal event of another block: its sort, its
            size, its phase and its place among those of its module.
        run, block: The run and the number of the block whose tensor it is; -1 outside of runs.
        first, last: For a free, the number of equal live tensors that are older, and younger.
    """

    kind: int
    phase: int
    alike: tuple[Any, ...]
    run: int
    block: int
    first: int = 0
    last: int = 0

    def label(self, moved: Moved) -> Hashable:
        """Label of the event, with the block's number as ``moved`` gives it for the run and number.

        A block may free what its neighbour made, which is another one where there are more.
        """
        # So a free is known by what it frees, and not by the block that made that.
        block = moved(self.run, self.block) if self.kind == ALLOCATE else -1
        return self.kind, self.alike, block


def events_of(trace: Trace, runs: Sequence[Run], over_all: Set[Hashable]) -> Iterator[Event]:
    """The events of a trace, independent of tensor ids.

    Args:
        trace: The trace of a model.
        runs: The runs of the model.
        over_all: Traits of what is made for all blocks at once, by :func:`made_over_all`.
    """

    @cache
    def place(module: str) -> tuple[str, int, int]:
        for index, run in enumerate(runs):
            if module.startswith(f"{run.name}."):
                number, _, rest = module.removeprefix(f"{run.name}.").partition(".")
                return rest, index, int(number)
        return module, -1, -1

    made: Counter[Hashable] = Counter()
    alike: list[tuple[Any, ...]] = []
    places: list[tuple[int, int]] = []
    for phase, (kind, tensor) in zip(phase_of_each(trace), trace.events, strict=True):
        if kind == ALLOCATE:
            module, maker = trace.modules[tensor], trace.makers[tensor]
            part, run, block = place(module)
            made[phase, module, maker] += 1
            # What is made around the blocks comes more often the more of these there are.
            around = any(f"{one.name}.".startswith(f"{module}.") for one in runs) or not module
            # So these are not numbered: one of them would be another one in a deeper model.
            order = 0 if around else made[phase, module, maker]
            stream = trace.streams[tensor] if trace.streams else 0
            sort = (trace.categories[tensor], part, run, maker, stream)
            # Another size in each trace, so no size (see made_over_all).
            size = -1 if (phase, *sort) in over_all else trace.sizes[tensor]
            alike.append((*sort, size, phase, order))
            places.append((run, block))
    return events_alike(trace, alike, places)


def events_alike(
    trace: Trace, alike: Sequence[tuple[Any, ...]], places: Sequence[tuple[int, int]] = ()
) -> Iterator[Event]:
    """The events of a trace, labelled by the traits that their tensors share with equal ones.

    Args:
        trace: The trace of the events.
        alike: :attr:`Event.alike` by tensor.
        places: Run and block by tensor; none by default.
    """
    alive: dict[Hashable, list[int]] = defaultdict(list)
    for phase, (kind, tensor) in zip(phase_of_each(trace), trace.events, strict=True):
        like = alive[alike[tensor]]
        run, block = places[tensor] if places else (-1, -1)
        if kind == ALLOCATE:
            like.append(tensor)
            yield Event(kind, phase, alike[tensor], run, block)
        else:
            # Ids of tensors differ between traces. What does not is how many equal ones are older,
            # or how many are younger: one of the two stays as there are more blocks.
            at = like.index(tensor)
            yield Event(kind, phase, alike[tensor], run, block, at, len(like) - 1 - at)
            del like[at]


def phase_of_each(trace: Trace) -> Iterator[int]:
    """The number of each event's phase."""
    begins = [begin for begin, _ in trace.phases]
    for number, (begin, end) in enumerate(pairwise([*begins, len(trace.events)])):
        yield from repeat(number, end - begin)


def made_over_all(traces: Sequence[Sequence[Event]]) -> Set[Hashable]:
    """Traits of tensors made for all blocks at once, such as by FSDP, which gathers whole groups.

    They are made outside of the blocks, as often in each trace, and with other sizes.
    """
    sizes: dict[Hashable, set[tuple[int, ...]]] = defaultdict(set)
    for events in traces:
        there: dict[Hashable, list[int]] = defaultdict(list)
        for event in events:
            if event.kind == ALLOCATE and event.run < 0:
                there[event.phase, *event.alike[:-3]].append(event.alike[-3])
        for alike, made in there.items():
            sizes[alike].add(tuple(made))
    # As many of them in each trace, as blocks do not make them; and not the same sizes.
    return {
        alike for alike, found in sizes.items() if len(found) > 1 and len({*map(len, found)}) == 1
    }


def ranks_of(
    traces: Sequence[Sequence[Event]], places: Sequence[Sequence[int]]
) -> list[list[Rank | None]]:
    """Rank of the equal live tensor that each event of each trace frees; ``None`` for allocations.

    In a phase that may be the same one throughout, counted from the first or from the last. Else
    it is the one counted from where a deeper trace counts as many. A block more frees as what was
    freed before. Where that is wrong, a comparison with a still deeper trace shows it.

    Args:
        traces: The events of the shallow trace, then of the deeper ones.
        places: Places of the shallow trace's events in each deeper one.
    """
    common = _common_ranks(traces)

    def alike(event: Event) -> Key:
        return event.phase, event.alike

    shallow, *deeper = traces
    found: list[list[Rank | None]] = [[None] * len(events) for events in traces]
    for index, event in enumerate(shallow):
        if event.kind == FREE:
            same = [events[there[index]] for events, there in zip(deeper, places, strict=True)]
            # From the oldest where as many are older in each trace; else from the youngest.
            from_first = all(one.first == event.first for one in same)
            own = Rank(event.first, False) if from_first else Rank(event.last, True)
            found[0][index] = common.get(alike(event), own)
    for number, (events, there) in enumerate(zip(deeper, places, strict=True), 1):
        aligned = dict(zip(there, found[0], strict=True))
        before: dict[Key, Rank] = {}
        for index, event in enumerate(events):
            if event.kind == FREE:
                if (rank := aligned.get(index)) is None:  # of the added block, which has no like
                    last = before.get(alike(event), Rank(0, True)).from_last
                    own = Rank(event.last if last else event.first, last)
                    rank = common.get(alike(event), own)
                found[number][index] = before[alike(event)] = rank
    return found


def _common_ranks(traces: Sequence[Sequence[Event]]) -> dict[Key, Rank]:
    """The rank of what is freed in a phase, where that is the same one throughout."""
    found: dict[Key, set[tuple[int, int]]] = defaultdict(set)
    for events in traces:
        for event in events:
            if event.kind == FREE:
                found[event.phase, event.alike].add((event.first, event.last))
    ranks = {}
    for key, places in found.items():
        first, last = min(places)
        # From the youngest where both ways fit: a backward pass frees the youngest first.
        if len({place for _, place in places}) == 1:
            ranks[key] = Rank(last, True)
        elif len({place for place, _ in places}) == 1:
            ranks[key] = Rank(first, False)
    return ranks
