"""How much time is left of what was given."""

from __future__ import annotations

import time
from collections.abc import Callable


class Budget:
    """Seconds that run out.

    Args:
        seconds: How many there are.
        clock: Seconds since any moment.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._begin = clock()

    @property
    def spent(self) -> float:
        """Seconds since the begin."""
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        """Seconds left; below zero where it is overdrawn."""
        return self._seconds - self.spent
