"""Whether two traces of the same steps, with other values, take the same memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy

from ...allocator.caching import ALLOCATE, FREE
from ...tracing.trace import Trace

_NUMBER_BYTES = 8
_ROUNDED_TO = 512
"""The caching allocator rounds sizes up to as many bytes."""
NUMBERS = float(_ROUNDED_TO)
"""Size of a block for a single number, or a few."""

_BEFORE_BACKWARD = ("", "inputs", "forward")
_MAY_PASS = (*_BEFORE_BACKWARD, "idle")
"""Phases whose blocks may be gone without a trace; a gradient and an update are what training is.
"""


def alike(one: Trace, other: Trace, passing_bytes: float) -> bool:
    """Whether two traces make the same allocations, as far as these matter.

    A condition that only prints computes what it prints, and drops it. So blocks may differ that
    are gone before one is made or freed that lasts, unless they raise the peak.

    Args:
        one: A trace.
        other: The trace of the same steps with other values.
        passing_bytes: Size of the largest such block. 0 for none: where sizes may be computed from
            a value, no block tells how large it may become.
    """
    first, second = _Blocks(one), _Blocks(other)
    if first.all == second.all or not passing_bytes:
        return first.all == second.all
    return first.lasting(passing_bytes) == second.lasting(passing_bytes)


class _Blocks:
    """Blocks requested from the caching allocator, in order.

    Single numbers that an optimizer makes are left out: whether one is a tensor or Python's own may
    depend on a value, as in ``max(norm, 1.01)``.

    Attributes:
        all: Whether each is allocated or freed, and its size as the allocator rounds it.
    """

    def __init__(self, trace: Trace) -> None:
        phases, phase = dict(trace.phases), ""
        left_out: set[int] = set()
        self.all: list[tuple[int, int]] = []
        self._tensors: list[int] = []
        self._phases: list[str] = []
        for index, (kind, tensor) in enumerate(trace.events):
            phase = phases.get(index, phase)
            size = trace.sizes[tensor]
            if kind == ALLOCATE and phase == "optimizer" and size <= _NUMBER_BYTES:
                left_out.add(tensor)
            if tensor not in left_out:
                self.all.append((kind, -(-size // _ROUNDED_TO)))
                self._tensors.append(tensor)
                self._phases.append(phase)

    def lasting(self, passing_bytes: float) -> tuple[list[tuple[int, int]], dict[bool, int]]:
        """The blocks that do not just pass, and the peaks before and from the backward pass on."""
        passes = self._passing(passing_bytes / _ROUNDED_TO)
        blocks = [block for block, gone in zip(self.all, passes, strict=True) if not gone]
        return blocks, self._peaks(passes)

    def _passing(self, largest: float) -> Sequence[bool]:
        """Whether each block is of a tensor in whose life there is none of a tensor that lasts."""
        ends: dict[int, list[int]] = defaultdict(list)
        for index, tensor in enumerate(self._tensors):
            ends[tensor].append(index)
        lives = numpy.array([life for life in ends.values() if len(life) == 2]).reshape(-1, 2)
        lasts = numpy.ones(len(self.all), bool)
        may_pass = numpy.isin(self._phases, _MAY_PASS)
        may_pass &= numpy.array([size for _, size in self.all]) <= largest
        lives = lives[may_pass[lives].all(axis=1)]
        lasts[lives] = False
        while True:  # what lasts makes that last which it begins or ends in
            before = numpy.cumsum(lasts)
            inside = before[lives[:, 1] - 1] > before[lives[:, 0]]
            if not inside.any():
                break
            lasts[lives[inside]] = True
            lives = lives[~inside]
        passing: list[bool] = (~lasts).tolist()
        return passing

    def _peaks(self, passes: Sequence[bool]) -> dict[bool, int]:
        """The most units at once, without passing ones of one unit, before backward and later."""
        peaks: dict[bool, int] = defaultdict(int)
        live = 0
        for (kind, size), phase, gone in zip(self.all, self._phases, passes, strict=True):
            if gone and size <= 1:
                continue
            live += -size if kind == FREE else size
            before = phase in _BEFORE_BACKWARD
            peaks[before] = max(peaks[before], live)
        return peaks
