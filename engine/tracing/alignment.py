"""Compares a sequence with one that has more items in some places."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import takewhile

from ..core.errors import EngineError

Labels = list[Hashable]


class NotRepeating(EngineError):
    """A step with more blocks is not that with fewer blocks, with something added."""


def aligned(short: Sequence[Labels], long: Sequence[Labels]) -> list[int]:
    """The place of each item of a sequence in one that has more items in some places.

    Args:
        short: The labels of the items, phase by phase.
        long: The labels of the longer sequence, in as many phases.

    Raises:
        NotRepeating: If the longer one is not the shorter one with items added.
    """
    if len(short) != len(long):
        raise NotRepeating("a step with more blocks has other phases")
    places: list[int] = []
    before = 0
    for fewer, more in zip(short, long, strict=True):
        places += [before + place for place in _aligned(fewer, more)]
        before += len(more)
    return places


def _aligned(short: Labels, long: Labels) -> list[int]:
    places: list[int] = []
    for item in range(len(short)):
        place = places[-1] + 1 if places else 0
        # Greedy: right after the last one where it can be, so additions come as late as possible.
        if place >= len(long) or long[place] != short[item]:
            place = _resumed(short, item, long, place)
        places.append(place)
    return places


def _resumed(short: Labels, item: int, long: Labels, place: int) -> int:
    """The place where the longer sequence goes on with what comes next in the shorter one.

    That is after more of what came before, if there is nothing else between; then at its end if all
    the rest is there; else where the most is alike.
    """
    latest = len(long) - (len(short) - item)  # later, the rest would not fit
    # More of what came just before, as where something is done for each block in turn.
    after = place
    while item and after <= latest and long[after] == short[item - 1]:
        after += 1
    if place < after <= latest and long[after] == short[item]:
        return after
    # All that is added stands here, before the rest.
    if place <= latest and long[latest:] == short[item:]:
        return latest
    starts = [start for start in range(place, latest + 1) if long[start] == short[item]]
    if not starts:
        raise NotRepeating("a step with more blocks does something else than one with fewer")
    # Several places go on alike. A wrong one ends soon, so the longest match is the right one; of
    # equal ones max takes the earliest.
    rest = short[item:]
    return max(starts, key=lambda start: _alike(rest, long[start : start + len(rest)]))


def _alike(some: Labels, others: Labels) -> int:
    """Number of items that are alike from the first on."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=True))))


def between(places: Sequence[int], length: int) -> dict[int, range]:
    """The items that a longer sequence has between aligned ones, by the item that they precede.

    Args:
        places: Places as :func:`aligned` returns them.
        length: Length of the longer sequence.
    """
    begins = [0, *(place + 1 for place in places)]
    gaps = [range(begin, end) for begin, end in zip(begins, [*places, length], strict=True)]
    return {item: gap for item, gap in enumerate(gaps) if gap}
