"""The maps of GPUs: what a million samples cost on each, against its speed; on log scales."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import floor, log10
from typing import Protocol

from analyses.charts.layout import Tick
from engine.answer.figures import COST, SPEED
from engine.core.numbers import usd

HEIGHT, TOP, BOTTOM = 300, 26, 40
"""Pixels."""

LEFT, RIGHT = 8.0, 97.0
"""Percent of the width."""

_MARGIN = 0.06
_NOT_IN_LABELS = re.compile(r"\b(NVIDIA|GeForce|SXM\d?) ")
_LETTER, _LINE, _AWAY = 0.85, 14.0, 1.2
"""A name takes these: percent of the width for each letter and from its dot, pixels of height.

They are those of a window of a tablet's width; on a wider one there is more room.
"""
_DOT_X, _DOT_Y = 0.8, 6.0
"""Half the size of a dot, in percent and pixels."""


class Prices(StrEnum):
    """The prices a map is drawn with."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class OnGpu(Protocol):
    """A workload on one GPU, at one price, as the page's table has it."""

    @property
    def name(self) -> str: ...
    @property
    def form_query(self) -> str: ...
    @property
    def why_not(self) -> str: ...
    @property
    def is_current(self) -> bool: ...
    @property
    def may_not_fit(self) -> bool: ...
    @property
    def samples_per_second(self) -> float: ...
    @property
    def usd_per_million_samples(self) -> float | None: ...
    @property
    def price_per_hour_usd(self) -> float | None: ...
    @property
    def price_date(self) -> str: ...


@dataclass(frozen=True)
class Segment:
    """A piece of a line; x in percent, y in pixels."""

    x1: float
    y1: float
    x2: float
    y2: float


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
    may_not_fit: bool
    form_query: str


@dataclass(frozen=True)
class Missing:
    """A GPU that is not on the map, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class GpuMap:
    """One map.

    Attributes:
        dates: The dates of its prices, as text.
        frontier: The line through the GPUs that none beats in both cost and speed, of those that
            surely fit if any does.
    """

    prices: Prices
    dates: str
    dots: list[Dot]
    frontier: list[Segment]
    ticks_x: list[Tick]
    ticks_y: list[Tick]
    missing: list[Missing]
    description: str

    @property
    def has_hollow_dots(self) -> bool:
        """Whether some of the GPUs may not fit."""
        return any(dot.may_not_fit for dot in self.dots)

    height, floor, left, right = HEIGHT, HEIGHT - BOTTOM, LEFT, RIGHT


def gpu_maps(on_demand: Sequence[OnGpu], spot: Sequence[OnGpu]) -> list[GpuMap]:
    """The map at each kind of price, on the same scales; none with fewer than two GPUs on it."""
    views = {Prices.ON_DEMAND: on_demand, Prices.SPOT: spot}
    drawn = {
        prices: [row for row in rows if not _why_missing(row)] for prices, rows in views.items()
    }
    shown = [prices for prices, rows in drawn.items() if len(rows) >= 2]
    if not shown:
        return []
    rows = [row for prices in shown for row in drawn[prices]]
    across = _Scale([row.samples_per_second for row in rows], LEFT, RIGHT)
    down = _Scale([_cost(row) for row in rows], HEIGHT - BOTTOM, TOP)
    return [_map(prices, drawn[prices], views[prices], across, down) for prices in shown]


def _map(
    prices: Prices, drawn: Sequence[OnGpu], rows: Sequence[OnGpu], across: _Scale, down: _Scale
) -> GpuMap:
    sure = [row for row in drawn if not row.may_not_fit]
    best = frontier_of(sure or drawn)
    at = {id(row): (across(row.samples_per_second), down(_cost(row))) for row in drawn}
    line = [at[id(row)] for row in best]
    return GpuMap(
        prices=prices,
        dates=_dates(drawn),
        dots=_dots(drawn, best, at),
        frontier=[Segment(*one, *other) for one, other in pairwise(line)],
        ticks_x=[Tick(across(value), SPEED.number(value)) for value in across.ticks()],
        ticks_y=[Tick(down(value), COST.number(value)) for value in down.ticks()],
        missing=[Missing(short_name(row.name), why) for row in rows if (why := _why_missing(row))],
        description=_description(prices, best, is_sure=bool(sure)),
    )


def _why_missing(row: OnGpu) -> str:
    """Why a GPU is not on the map; empty if it is."""
    if row.why_not:
        return row.why_not
    return "" if _cost(row) > 0 else "its price is $0"


def _cost(row: OnGpu) -> float:
    """USD per million samples of a row that has a price."""
    return row.usd_per_million_samples or 0.0


def _dates(rows: Sequence[OnGpu]) -> str:
    dates = sorted({row.price_date for row in rows if row.price_date})
    unknown = sum(not row.price_date for row in rows)
    span = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""
    return ", ".join(
        part for part in (span, f"{unknown} of unknown date" if unknown else "") if part
    )


def frontier_of(rows: Sequence[OnGpu]) -> list[OnGpu]:
    """The GPUs that no other beats in both cost and speed, the fastest first."""
    found: list[OnGpu] = []
    for row in sorted(rows, key=lambda r: (-r.samples_per_second, _cost(r))):
        if not found or _cost(row) < _cost(found[-1]):
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
    taken = [_Box(x - _DOT_X, x + _DOT_X, y, _DOT_Y) for x, y in at.values()]
    dots = []
    for row in ranked:
        x, y = at[id(row)]
        name = short_name(row.name)
        sides = ("end", "start") if x > (LEFT + RIGHT) / 2 else ("start", "end")
        boxes = {side: _name_box(name, x, y, side) for side in sides}
        free = [side for side, box in boxes.items() if box.is_free(taken)]
        if free:
            taken.append(boxes[free[0]])
        dots.append(
            Dot(
                name=row.name,
                label=name if free else "",
                title=_title(row),
                x=x,
                y=y,
                anchor=free[0] if free else sides[0],
                is_current=row.is_current,
                is_best=row in best,
                may_not_fit=row.may_not_fit,
                form_query="" if row.is_current else row.form_query,
            )
        )
    return dots


@dataclass(frozen=True)
class _Box:
    """The place of a name or a dot; ``low`` and ``high`` in percent, the others in pixels."""

    low: float
    high: float
    y: float
    half_height: float

    def is_free(self, taken: Sequence[_Box]) -> bool:
        """Whether it is on the map and overlaps none of the others."""
        return LEFT <= self.low <= self.high <= 100 and not any(
            self.low < other.high
            and other.low < self.high
            and abs(self.y - other.y) < self.half_height + other.half_height
            for other in taken
        )


def _name_box(name: str, x: float, y: float, side: str) -> _Box:
    width = _LETTER * len(name)
    low = x + _AWAY if side == "start" else x - _AWAY - width
    return _Box(low, low + width, y, _LINE / 2)


def short_name(name: str) -> str:
    """A GPU's name for a label: without the vendor and the socket."""
    return _NOT_IN_LABELS.sub("", name)


def _title(row: OnGpu) -> str:
    date = f", {row.price_date}" if row.price_date else ""
    return (
        f"{row.name}: {SPEED.with_unit(row.samples_per_second)} (predicted), "
        f"{COST.text(row.usd_per_million_samples)} per million at "
        f"{usd(row.price_per_hour_usd)} per GPU-hour (assumed{date})"
        f"{', may not fit' if row.may_not_fit else ''}"
    )


def _description(prices: Prices, best: Sequence[OnGpu], *, is_sure: bool) -> str:
    names, none = ", ".join(row.name for row in best), "None"
    if is_sure:
        none = "Of those that surely fit, none"
    scales = f"Cost per million samples at {prices} prices vs. speed."
    return f"{scales} {none} beats these in both: {names}."
