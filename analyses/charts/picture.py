"""A picture of GPU memory and speed over batch sizes or lengths, each on axes of its own.

The server draws it, so that it is there without JavaScript. Sizes stand where they belong on a true
scale; a script then shows the figures of the one that is pointed at, without a request. Positions
along the width are in percent, since the width is the reader's; heights are in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from math import ceil, floor, log10

from analyses.charts.breakdown import CATEGORIES, memory_sizes, used_bytes
from analyses.charts.layout import Tick
from analyses.formatting import exact, in_thousands
from engine.core.numbers import whole
from engine.core.sizes import GIB, gib, gib_number
from engine.interface.trial import Trial

TOP, MEMORY, SPEED = 78, 160, 76
"""Pixels: of the marks above the memory, of the memory, and of the speed."""

BETWEEN, BOTTOM = 32, 40
"""Pixels: of the title between both, and of the horizontal axis."""

WIDTH = 1000
"""The width of the shapes' own scale, which the browser stretches."""

MAX_SHOWN = 1.2
"""Memory above this multiple of the GPU's is cut."""

STACKED = (
    "context", "optimizer_state", "parameters", "gradients", "casts", "workspaces", "inputs",
    "outputs", "cache", "activations", "temporaries", "tensors", "cached",
)  # fmt: skip
"""Categories that the size changes least are at the bottom, so that growth can be read."""

_MARK_HEIGHT = 17
_TICKS_ACROSS, _TICKS_UP = 8, 4
_MIN_SHORTENED = 1e5
"""From here on a label in full is too long to stand beside the axis."""


class Fit(StrEnum):
    """Whether a batch fits."""

    FITS = "fits"
    UNCERTAIN = "may run out of memory"
    FAILS = "runs out of memory"


@dataclass(frozen=True)
class Point:
    """One batch size, or one length, as text, for the line under the picture.

    Attributes:
        at: The batch size or the length.
        sizes: GiB by category.
    """

    at: str
    fit: Fit
    source: str
    used: str
    speed: str
    cost: str
    sizes: dict[str, str]


@dataclass(frozen=True)
class Column:
    """The part of the width that is nearer to one size than to any other.

    Attributes:
        middle: Where the size itself stands.
        speed_y: The height of its speed; ``None`` without one.
    """

    size: int
    x: float
    width: float
    middle: float
    fit: Fit
    speed_y: float | None
    point: Point


@dataclass(frozen=True)
class Area:
    """One category over all sizes, as the points of a polygon on the shapes' own scale."""

    category: str
    points: str


@dataclass(frozen=True)
class Mark:
    """A batch size or length with a name; ``x`` in percent, ``y`` in pixels."""

    name: str
    role: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Picture:
    """The whole picture.

    Attributes:
        title: Its heading.
        name, label: The name of what differs between the columns: before a value of it, and alone.
        unit: The unit of that, for the axis.
        start: The index of the column that the slider starts at.
        speed: The points of the line of speeds; empty where fewer than two are known.
        categories: Those of all columns and of what is free, with their names, from the top.
        limit_y: The end of the GPU's memory.
        over_x: Where memory runs out; 100 where it never does.
        description: The picture as text.
    """

    title: str
    name: str
    label: str
    unit: str
    columns: list[Column]
    areas: list[Area]
    marks: list[Mark]
    speed: str
    categories: list[tuple[str, str]]
    ticks_x: list[Tick]
    ticks_memory: list[Tick]
    ticks_speed: list[Tick]
    limit_y: float
    limit: str
    over_x: float
    start: int
    description: str

    @property
    def first(self) -> Point:
        return self.columns[self.start].point

    @property
    def last_index(self) -> int:
        return len(self.columns) - 1

    @property
    def points(self) -> list[dict[str, object]]:
        """The points as JSON, for the slider."""
        return [asdict(column.point) for column in self.columns]

    top, memory, floor, scale = TOP, MEMORY, TOP + MEMORY, WIDTH
    speed_top, speed_height = TOP + MEMORY + BETWEEN, SPEED

    @property
    def over_width(self) -> float:
        return round(100 - self.over_x, 3)

    @property
    def end(self) -> int:
        """The bottom of the lowest plot, where the horizontal axis is."""
        return self.speed_top + SPEED if self.speed else self.floor

    @property
    def height(self) -> int:
        return self.end + BOTTOM


@dataclass(frozen=True)
class Drawn:
    """Words of a picture that its trials do not say."""

    title: str
    name: str
    label: str
    unit: str
    description: str


def draw(
    drawn: Drawn,
    sized: Sequence[tuple[int, Trial]],
    names: Mapping[int, Sequence[str]],
    start: int,
    total: int,
    text: Callable[[Trial, Collection[str]], Point],
) -> Picture:
    """The picture of trials.

    Args:
        drawn: Its words.
        sized: The trials by what they differ in, such as the batch size, growing.
        names: The names of some sizes.
        start: The size that the slider starts at.
        total: The GPU's memory in bytes.
        text: The point of a trial, with its sizes in these categories.
    """
    trials, sizes = [trial for _, trial in sized], [size for size, _ in sized]
    highest = max(used_bytes(trial) or 0 for trial in trials)
    top_bytes = min(max(highest, total), MAX_SHOWN * total)
    middles = [100 * size / sizes[-1] for size in sizes]
    found = {category for trial in trials for category in memory_sizes(trial, total)}
    speeds = [trial.samples_per_second if trial.fits else None for trial in trials]
    fastest = max((speed for speed in speeds if speed), default=0.0)
    has_speed = sum(bool(speed) for speed in speeds) > 1
    columns = _columns(sized, middles, total, speeds if has_speed else [None] * len(speeds), text)
    return Picture(
        title=drawn.title,
        name=drawn.name,
        label=drawn.label,
        unit=drawn.unit,
        columns=columns,
        areas=_areas(trials, middles, total, top_bytes),
        marks=_marks(names, dict(zip(sizes, middles, strict=True))),
        speed=_speed_line(columns) if has_speed else "",
        categories=[
            (name, CATEGORIES[name][0]) for name in ("free", *reversed(STACKED)) if name in found
        ],
        ticks_x=[
            Tick(round(100 * value / sizes[-1], 3), whole(round(value)))
            for value in _ticks(sizes[-1], _TICKS_ACROSS)
            if value == round(value)
        ],
        ticks_memory=[
            Tick(round(TOP + MEMORY * (1 - value * GIB / top_bytes), 1), f"{value:,g}")
            for value in _ticks(top_bytes / GIB, _TICKS_UP)
        ],
        ticks_speed=_speed_ticks(fastest) if has_speed else [],
        limit_y=round(TOP + MEMORY * (1 - total / top_bytes), 1),
        limit=f"{gib_number(total)} GiB",
        over_x=next((round(c.middle, 3) for c in columns if c.fit is Fit.FAILS), 100.0),
        start=sizes.index(start),
        description=drawn.description,
    )


def fit_of(trial: Trial, total_bytes: int) -> Fit:
    if not trial.fits:
        return Fit.FAILS
    high = trial.device_used_high_bytes
    return Fit.UNCERTAIN if high is not None and high > total_bytes else Fit.FITS


def point_of(trial: Trial, size: int, total: int, categories: Collection[str]) -> Point:
    """The text of one column, without a speed."""
    used = used_bytes(trial)
    text = f"{gib_number(used)} of {gib(total)}"
    low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
    if low is not None and high is not None:
        text += f" ({gib_number(low)} to {gib_number(high)})"
    sizes = memory_sizes(trial, total)
    return Point(
        at=whole(size),
        fit=fit_of(trial, total),
        source=trial.source,
        used=text,
        speed="",
        cost="",
        sizes={category: gib_number(sizes.get(category, 0)) for category in categories},
    )


def _columns(
    sized: Sequence[tuple[int, Trial]],
    middles: Sequence[float],
    total: int,
    speeds: Sequence[float | None],
    text: Callable[[Trial, Collection[str]], Point],
) -> list[Column]:
    """The columns, each up to the middle between its size and the next."""
    found = {category for _, trial in sized for category in memory_sizes(trial, total)}
    between = [(one + other) / 2 for one, other in pairwise(middles)]
    ends = [0.0, *between, 100.0]
    fastest = max((speed for speed in speeds if speed), default=0.0)
    return [
        Column(
            size=size,
            x=round(ends[index], 3),
            width=round(ends[index + 1] - ends[index], 3),
            middle=round(middles[index], 3),
            fit=fit_of(trial, total),
            speed_y=_speed_y(speeds[index], fastest),
            point=text(trial, found),
        )
        for index, (size, trial) in enumerate(sized)
    ]


def _areas(
    trials: Sequence[Trial], middles: Sequence[float], total: int, top_bytes: float
) -> list[Area]:
    """The categories on top of each other; memory is taken to grow evenly between two sizes."""
    xs = [round(WIDTH * middle / 100, 1) for middle in middles]
    sizes = [memory_sizes(trial, total) for trial in trials]
    floors = [0.0] * len(trials)
    areas = []
    for category in STACKED:
        heights = [MEMORY * each.get(category, 0) / top_bytes for each in sizes]
        if not any(heights):
            continue
        tops = [low + height for low, height in zip(floors, heights, strict=True)]
        edge = [*zip(xs, tops, strict=True), *reversed(list(zip(xs, floors, strict=True)))]
        areas.append(Area(category, " ".join(f"{x:g},{MEMORY - y:.1f}" for x, y in edge)))
        floors = tops
    return areas


def _speed_y(speed: float | None, fastest: float) -> float | None:
    if not speed:
        return None
    top = TOP + MEMORY + BETWEEN
    return round(top + SPEED * (1 - speed / _axis_end(fastest)), 1)


def _speed_line(columns: Sequence[Column]) -> str:
    top = TOP + MEMORY + BETWEEN
    known = [(column.middle, column.speed_y) for column in columns if column.speed_y is not None]
    return " ".join(f"{WIDTH * x / 100:g},{y - top:.1f}" for x, y in known)


def _speed_ticks(fastest: float) -> list[Tick]:
    ticks = _ticks(_axis_end(fastest), _TICKS_UP)
    return [Tick(_speed_y(value, fastest) or 0.0, _tick_label(value)) for value in ticks if value]


def _tick_label(value: float) -> str:
    """A label so short that it fits beside the axis: a small model trains millions a second."""
    return exact(value) if value < _MIN_SHORTENED else in_thousands(value)


def _axis_end(highest: float) -> float:
    """The end of an axis from zero: the first tick at or above the highest value."""
    step = _step(highest, _TICKS_UP)
    return step * ceil(highest / step)


def _ticks(highest: float, count: int) -> list[float]:
    """Round values from zero up to the highest, about so many."""
    step = _step(highest, count)
    return [round(step * index, 6) for index in range(floor(highest / step + 1e-9) + 1)]


def _step(highest: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, that about ``count`` of fill the axis."""
    power = 10.0 ** floor(log10(highest / count))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power * count >= highest)


def _marks(names: Mapping[int, Sequence[str]], middles: Mapping[int, float]) -> list[Mark]:
    """The names of sizes, each on a line of its own, so that no two overlap."""
    shown = [(size, name) for size, roles in names.items() for name in roles if size in middles]
    return [
        Mark(
            name=f"{name} {whole(size)}",
            role=name.split()[0],
            x=round(middles[size], 3),
            y=_MARK_HEIGHT * (index + 1),
            anchor="start" if middles[size] < 50 else "end",
        )
        for index, (size, name) in enumerate(shown)
    ]
