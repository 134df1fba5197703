"""The most operators that a script may run with values that may never let it reach a step.

It is shared with processes that were forked before it is known: other batch sizes are traced
beside the first, whose operators tell it.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from struct import Struct

from ...core.errors import EngineError

_FAR_LONGER = 3
"""Times the operators of the first values' steps after which others are looked at."""
_MIN_OPERATORS = 1_000
_NUMBERS = Struct("qq")


class ReachesNoStep(EngineError):
    """A script that ran far longer with some values than with others, without a step.

    Attributes:
        peak_allocated_bytes: Most bytes alive at once until then.
    """

    def __init__(self, operators: int, peak_allocated_bytes: int) -> None:
        super().__init__(f"no step is reached in {operators:,} operators")
        self.peak_allocated_bytes = peak_allocated_bytes


class Limit:
    """The most operators that may run before a step ends; any number until it is set.

    Memory that still rises may rise beyond that of the steps. So it is waited for until it does, or
    has not risen since half as many operators had run.

    Attributes:
        peak: Most bytes alive at once so far.
    """

    def __init__(self) -> None:
        self.peak: Callable[[], int] = lambda: 0
        self._shared = mmap(-1, _NUMBERS.size)
        self._lifted = False
        self._next_look = self._peak_then = 0

    def set_by(self, operators: float, peak_allocated_bytes: float) -> None:
        """Allow far more operators than as many, and no more.

        Args:
            operators: Operators of steps that ended, with other values.
            peak_allocated_bytes: Most bytes alive at once in these.
        """
        most = max(_MIN_OPERATORS, round(_FAR_LONGER * operators))
        self._shared[:] = _NUMBERS.pack(most, round(peak_allocated_bytes))

    def lift(self) -> None:
        """Allow any number: a step has ended."""
        self._lifted = True

    def check(self, operators: int) -> None:
        """Give up a script that has run so many.

        Raises:
            ReachesNoStep: If it has run too many.
        """
        if self._lifted:
            return
        most, known_peak = _NUMBERS.unpack(self._shared[:])
        if not most or operators <= max(most, self._next_look):
            return
        peak = self.peak()
        if peak > known_peak or (self._next_look and peak <= self._peak_then):
            raise ReachesNoStep(operators, peak)
        self._next_look, self._peak_then = 2 * operators, peak
