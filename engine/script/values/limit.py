"""The most operators that a script may run with values that may never let it reach a step.

It is shared with processes that were forked before it is known: other batch sizes are traced
beside the first, whose operators tell it.
"""

from __future__ import annotations

from mmap import mmap

_FAR_LONGER = 10
"""Times the operators of the first steps after which other values are taken not to reach one."""
_LEAST = 1_000
"""Operators that other values may run in any case."""
_BYTES = 8


class Limit:
    """The most operators that may run; any number until it is set."""

    def __init__(self) -> None:
        self._shared = mmap(-1, _BYTES)

    def set_by(self, operators: int) -> None:
        """Allow far more operators than the first steps took, and no more."""
        most = max(_LEAST, _FAR_LONGER * operators)
        self._shared[:] = most.to_bytes(_BYTES, "little")

    def is_passed_by(self, operators: int) -> bool:
        return 0 < int.from_bytes(self._shared[:], "little") < operators
