"""The operations of a deep model's step from those of shallow ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence, Set
from itertools import groupby
from typing import NamedTuple

from .alignment import Labels, NotRepeating, aligned, between
from .built_trace import Origin, by_origin
from .trace import ON_HOST, RECOMPUTATION, Operation

_OVER_ALL = tuple(
    f"{place}aten.{name}"
    for place in ("", ON_HOST)
    for name in ("_foreach_", "_fused_", "_amp_for")
)
"""Operations over the tensors of all blocks."""
_BACKWARD = "backward"


class Work(NamedTuple):
    """An operation of a deep model.

    Attributes:
        origin: Its origin.
        operation: The operation itself.
        over_all: Whether it has more to do the more blocks there are.
    """

    origin: Origin
    operation: Operation
    over_all: bool


def work_at(
    shallow: Sequence[Operation], deeper: Sequence[Sequence[Operation]], more: Sequence[int]
) -> list[Work]:
    """The work of a step with ``more`` repeats more of each run.

    Args:
        shallow: The work with the fewest repeats.
        deeper: For each run, the work with one repeat more of it.
        more: Number of repeats more of each.

    Raises:
        NotRepeating: If a deeper one is not the shallow one with something added.
    """
    places = [_places(shallow, one) for one in deeper]
    added = [between(there, len(one)) for there, one in zip(places, deeper, strict=True)]
    work: list[Work] = []
    for index in range(len(shallow) + 1):
        # As with events: what blocks add precedes the next operation of the shallow one.
        for number, gaps in enumerate(added):
            gap = gaps.get(index, range(0))
            one_more = [
                Work(
                    (1 + number, place), deeper[number][place], _is_over_all(deeper[number][place])
                )
                for place in gap
            ]
            work += one_more * more[number]
        if index < len(shallow):
            here = shallow[index]
            like = [one[there[index]] for there, one in zip(places, deeper, strict=True)]
            # Over all blocks: known by name, or seen to have more to do with one block more.
            grows = _is_over_all(here) or any(one.numbers != here.numbers for one in like)
            work.append(Work((0, index), _grown(here, like, more), grows))
    return work


def numbers_there(
    work: Sequence[Work], there: Sequence[Operation]
) -> dict[Origin, tuple[int, ...]]:
    """The numbers of operations at another batch size, without those over all blocks.

    Raises:
        NotRepeating: If these are others there, or any operation is, or repeats of one differ.
    """
    if len(work) != len(there):
        raise NotRepeating("at another batch size, a step does more or less")
    numbers = []
    for (origin, here, over_all), other in zip(work, there, strict=True):
        # What is over all blocks has to agree as it is: how its growth depends on the batch is not
        # known. Optimizers, which it mostly is, do not depend on the batch.
        if (here if over_all else here.with_numbers(other.numbers)) != other:
            raise NotRepeating("at another batch size, a step computes something else")
        if not over_all:
            numbers.append((origin, other.numbers))
    return by_origin(numbers)


def _is_over_all(operation: Operation) -> bool:
    return operation.name.startswith(_OVER_ALL)


def _places(shallow: Sequence[Operation], deeper: Sequence[Operation]) -> list[int]:
    """Places of the shallow trace's operations in that with one repeat more of a run.

    Operations of which there are as many with more blocks belong to no block, and each may have
    more to do: such as FSDP's, which gathers a group in one piece.
    """
    # Without their amount of work, else one of them that grows would equal nothing in the other.
    fewer, more = (Counter(map(_sort, one)) for one in (shallow, deeper))
    of_none = {sort for sort, count in fewer.items() if more[sort] == count}
    return aligned(_labels(shallow, of_none), _labels(deeper, of_none))


def _sort(one: Operation) -> Hashable:
    return one.phase, one.name, one.dtype, one.channels_last


def _labels(operations: Sequence[Operation], of_none: Set[Hashable]) -> list[Labels]:
    """Labels of operations, without the amount of work where that may grow; by phases."""
    return [
        [(_sort(one), () if _sort(one) in of_none else one.numbers) for one in phase]
        for _, phase in groupby(operations, _phase)
    ]


def _phase(operation: Operation) -> str:
    """The phase that an operation is part of: a backward pass recomputes block after block."""
    return _BACKWARD if operation.phase == RECOMPUTATION else operation.phase


def _grown(operation: Operation, deeper: Sequence[Operation], more: Sequence[int]) -> Operation:
    """An operation that has more to do with each repeat more."""
    numbers = [
        number + sum(count * (there - number) for there, count in zip(grown, more, strict=True))
        for number, *grown in zip(operation.numbers, *(one.numbers for one in deeper), strict=True)
    ]
    return operation.with_numbers(tuple(numbers))
