"""A line the height of a row: samples per second over the batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core.numbers import significant

WIDTH, HEIGHT = 64, 16
_EDGE = 2
"""Pixels that the line keeps from the edges, so that its ends are not cut."""


@dataclass(frozen=True)
class Sparkline:
    """A line in a box of :data:`WIDTH` by :data:`HEIGHT` pixels.

    Attributes:
        points: Its corners, as an SVG polyline takes them.
        words: The same for those who do not see it.
    """

    points: str
    words: str


def sparkline(speeds: Sequence[tuple[int, float]]) -> Sparkline | None:
    """The line of batch sizes, rising, with their samples per second; ``None`` below two."""
    if len(speeds) < 2:
        return None
    (first, _), (last, _) = speeds[0], speeds[-1]
    fastest = max(speed for _, speed in speeds) or 1.0
    points = (
        (
            _EDGE + (WIDTH - 2 * _EDGE) * (batch - first) / (last - first),
            HEIGHT - _EDGE - (HEIGHT - 2 * _EDGE) * speed / fastest,
        )
        for batch, speed in speeds
    )
    ends = (
        f"{significant(speed)} samples/s at batch {batch:,}"
        for batch, speed in speeds[:: len(speeds) - 1]
    )
    return Sparkline(" ".join(f"{x:.1f},{y:.1f}" for x, y in points), ", ".join(ends))
