"""Places of a script that read data: those whose batches are learned from, and all others.

A script may look at its training data too: by an evaluation after each epoch, to fit statistics.
The data are the same then, and the place that reads them is another one.
"""

from __future__ import annotations

import sys
from types import FrameType

from .placeholders import PLUMBING

Place = tuple[tuple[str, int], ...]
"""Lines of the calls that lead to a read, the innermost first."""


def reading_place() -> Place:
    """The place that reads now, outside PyTorch and the engine."""
    frame: FrameType | None = sys._getframe(1)
    lines: list[tuple[str, int]] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(PLUMBING):
            lines.append((file, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)


class ReadingPlaces:
    """Tells the places that feed training steps by the passes that follow a read."""

    def __init__(self) -> None:
        self._learning: set[Place] = set()
        self._latest: set[Place] = set()  # reads since the latest pass, and those before it
        self._looked_at = False  # by a pass since the latest read

    def read_at(self, place: Place) -> None:
        """A batch is read at a place."""
        if self._looked_at:
            self._latest.clear()
            self._looked_at = False
        self._latest.add(place)

    def forward(self, *, learns: bool) -> None:
        """A forward pass begins, with gradients or without."""
        self._looked_at = True
        if learns:
            self._learning |= self._latest

    def learns_at(self, place: Place) -> bool:
        """Whether batches that were read there were learned from."""
        return place in self._learning
