"""The map of GPUs: what a million samples cost on each, against its speed; on log scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10
from typing import Protocol

from analyses.charts.by_batch import Segment
from analyses.formatting import significant, usd

HEIGHT, TOP, BOTTOM = 340, 26, 44
"""Pixels."""

LEFT, RIGHT = 8.0, 97.0
"""Percent of the width."""

_MARGIN = 0.06
_CROWDED_X, _CROWDED_Y = 9.0, 15.0
"""A name closer than this to another, in percent and pixels, is left out."""


class OnGpu(Protocol):
    """A workload on one GPU, as the page's table has it."""

    @property
    def name(self) -> str: ...
    @property
    def form_query(self) -> str: ...
    @property
    def fits(self) -> bool: ...
    @property
    def is_current(self) -> bool: ...
    @property
    def samples_per_second(self) -> float: ...
    @property
    def usd_per_million_samples(self) -> float: ...
    @property
    def price_per_hour_usd(self) -> float: ...


@dataclass(frozen=True)
class Dot:
    """One GPU; ``x`` in percent, ``y`` in pixels. ``label`` is empty where there is no room."""

    name: str
    label: str
    title: str
    x: float
    y: float
    anchor: str
    is_current: bool
    is_best: bool
    form_query: str


@dataclass(frozen=True)
class Tick:
    """A value on an axis, where it stands."""

    at: float
    label: str


@dataclass(frozen=True)
class GpuMap:
    """The whole map.

    Attributes:
        frontier: The line through the GPUs that none beats in both cost and speed.
        fails: How many GPUs the workload does not fit on.
    """

    dots: list[Dot]
    frontier: list[Segment]
    ticks_x: list[Tick]
    ticks_y: list[Tick]
    fails: int
    description: str

    height, floor, left, right = HEIGHT, HEIGHT - BOTTOM, LEFT, RIGHT


def gpu_map(rows: Sequence[OnGpu]) -> GpuMap | None:
    """The map of the GPUs that fit; ``None`` if fewer than two do."""
    fitting = [row for row in rows if row.fits]
    if len(fitting) < 2:
        return None
    across = _Scale([row.samples_per_second for row in fitting], LEFT, RIGHT)
    down = _Scale([row.usd_per_million_samples for row in fitting], HEIGHT - BOTTOM, TOP)
    best = frontier_of(fitting)
    at = {
        id(row): (across(row.samples_per_second), down(row.usd_per_million_samples))
        for row in fitting
    }
    line = [at[id(row)] for row in best]
    return GpuMap(
        dots=_dots(fitting, best, at),
        frontier=[Segment(*one, *other) for one, other in pairwise(line)],
        ticks_x=[Tick(across(value), significant(value)) for value in across.ticks()],
        ticks_y=[Tick(down(value), usd(value)) for value in down.ticks()],
        fails=len(rows) - len(fitting),
        description=_description(best),
    )


def frontier_of(rows: Sequence[OnGpu]) -> list[OnGpu]:
    """The GPUs that no other beats in both cost and speed, the fastest first."""
    found: list[OnGpu] = []
    for row in sorted(rows, key=lambda r: (-r.samples_per_second, r.usd_per_million_samples)):
        if not found or row.usd_per_million_samples < found[-1].usd_per_million_samples:
            found.append(row)
    return found


class _Scale:
    """A logarithmic scale from values to a range, with some room on both sides."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        logs = [log10(value) for value in values]
        span = max(max(logs) - min(logs), 0.1)
        self._low, self._high = min(logs) - _MARGIN * span, max(logs) + _MARGIN * span
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        share = (log10(value) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 2)

    def ticks(self) -> list[float]:
        """Values 1, 2 and 5 times a power of ten on the scale."""
        powers = range(floor(self._low), floor(self._high) + 1)
        values = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        return [value for value in values if self._low <= log10(value) <= self._high]


def _dots(
    rows: Sequence[OnGpu], best: Sequence[OnGpu], at: dict[int, tuple[float, float]]
) -> list[Dot]:
    """The dots; those that matter most get their names first."""
    ranked = sorted(rows, key=lambda row: (not row.is_current, row not in best))
    named: list[tuple[float, float]] = []
    dots = []
    for row in ranked:
        x, y = at[id(row)]
        has_room = all(abs(x - u) > _CROWDED_X or abs(y - v) > _CROWDED_Y for u, v in named)
        if has_room:
            named.append((x, y))
        dots.append(
            Dot(
                name=row.name,
                label=row.name.removeprefix("NVIDIA ") if has_room else "",
                title=_title(row),
                x=x,
                y=y,
                anchor="end" if x > (LEFT + RIGHT) / 2 else "start",
                is_current=row.is_current,
                is_best=row in best,
                form_query="" if row.is_current else row.form_query,
            )
        )
    return dots


def _title(row: OnGpu) -> str:
    return (
        f"{row.name}: {significant(row.samples_per_second)} samples/s (predicted), "
        f"{usd(row.usd_per_million_samples)} per million at {usd(row.price_per_hour_usd)} per "
        "GPU-hour (assumed)"
    )


def _description(best: Sequence[OnGpu]) -> str:
    names = ", ".join(row.name for row in best)
    return f"Cost per million samples against speed. None beats these in both: {names}."
