"""Memory and speed by batch size: one picture, with a bar for each batch size that is known.

The bars are drawn by the server, so that the picture is there without JavaScript. A slider then
goes through the same points; each has its figures as text, so that nothing is requested again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import pairwise

from analyses.charts.breakdown import CATEGORIES, memory_sizes, used_bytes
from analyses.formatting import tokens_per_second
from engine.answer.amounts import trial_at
from engine.answer.economics import usd_per_million_samples
from engine.answer.figures import COST, LARGEST_BATCH, RECOMMENDED_BATCH, SPEED
from engine.core.numbers import whole
from engine.core.sizes import gib, gib_number
from engine.interface.result import AnalysisResult, Trial
from engine.interface.tokens import Tokens

HEIGHT, TOP, BOTTOM = 330, 78, 28
"""Pixels: of the picture, of the marks above the bars, of the batch sizes below them."""

HIGHEST = 1.2
"""A bar higher than this multiple of the GPU's memory is cut."""

STACKED = (
    "context", "optimizer_state", "parameters", "gradients", "casts", "workspaces", "inputs",
    "outputs", "cache", "activations", "temporaries", "tensors", "cached",
)  # fmt: skip
"""Categories that the batch size changes least are at the bottom, so that growth can be read."""

_FARTHEST = 2
"""Batch sizes beyond this multiple of the limit are left out."""
_GAP = 0.22
_LABELS = 9
_MARK_HEIGHT = 17


class Fit(StrEnum):
    """Whether a batch fits."""

    FITS = "fits"
    UNCERTAIN = "may run out of memory"
    FAILS = "runs out of memory"


@dataclass(frozen=True)
class Part:
    """One category in a bar; pixels from the top."""

    category: str
    y: float
    height: float


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
class Bar:
    """One batch size or length; ``x``, ``width`` and ``middle`` in percent of the width."""

    size: int
    x: float
    width: float
    middle: float
    parts: list[Part]
    fit: Fit
    label: str
    point: Point


@dataclass(frozen=True)
class Mark:
    """A batch size or length with a name; ``x`` in percent, ``y`` in pixels."""

    name: str
    role: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Segment:
    """A piece of the speed's line; x in percent, y in pixels."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Picture:
    """The whole picture.

    Attributes:
        title: Its heading.
        name, label: The name of what differs between the bars: before a value of it, and alone.
        start: The index of the bar that the slider starts at.
        categories: Those of all bars and of what is free, with their names, from the top.
        limit_y: The end of the GPU's memory.
        description: The picture as text.
    """

    title: str
    name: str
    label: str
    bars: list[Bar]
    marks: list[Mark]
    speed: list[Segment]
    categories: list[tuple[str, str]]
    limit_y: float
    limit: str
    start: int
    description: str

    @property
    def first(self) -> Point:
        return self.bars[self.start].point

    @property
    def last_index(self) -> int:
        return len(self.bars) - 1

    @property
    def points(self) -> list[dict[str, object]]:
        """The points as JSON, for the slider."""
        return [asdict(bar.point) for bar in self.bars]

    height, top, floor, column = HEIGHT, TOP, HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM
    sizes_y = HEIGHT - 10


def picture_of(result: AnalysisResult, tokens: Tokens | None) -> Picture | None:
    """The picture of a result; ``None`` where the memory of no batch size is known."""
    trials = _trials(result)
    if not trials:
        return None

    def text(trial: Trial, categories: Collection[str]) -> Point:
        speed = trial.samples_per_second if trial.fits else None
        point = point_of(trial, trial.batch_size, result.gpu.total_bytes, categories)
        return replace(point, speed=_speed(speed, tokens), cost=_cost(speed, result))

    bars, limit_y, categories = bars_of(
        [(trial.batch_size, trial) for trial in trials], result.gpu.total_bytes, text
    )
    names: dict[int, list[str]] = {}
    for name, size in (
        ("current", result.current_batch_size),
        ("recommended", result.recommended_batch_size),
        ("fastest", result.fastest_batch_size),
        ("largest", result.largest_batch_size),
    ):
        if size is not None:
            names.setdefault(size, []).append(name)
    return Picture(
        title="Memory and speed by batch",
        name="Batch",
        label="Batch size",
        bars=bars,
        marks=marks_of(names, bars),
        speed=_speed_line(trials, bars),
        categories=categories,
        limit_y=limit_y,
        limit=f"{gib_number(result.gpu.total_bytes)} GiB",
        start=[bar.size for bar in bars].index(result.recommended_batch_size),
        description=_description(result),
    )


def bars_of(
    sized: Sequence[tuple[int, Trial]], total: int, text: Callable[[Trial, Collection[str]], Point]
) -> tuple[list[Bar], float, list[tuple[str, str]]]:
    """The bars of trials, growing.

    Args:
        sized: Each with what the bars differ in, such as its batch size.
        total: The GPU's memory.
        text: The point of a trial, with its sizes in these categories.

    Returns:
        The bars, the height of the GPU's memory in pixels from the top, and the categories of all
        bars and of what is free, with their names, from the top.
    """
    trials = [trial for _, trial in sized]
    highest = max(used_bytes(trial) or 0 for trial in trials)
    scale = (HEIGHT - TOP - BOTTOM) / min(max(highest, total), HIGHEST * total)
    width = 100 / len(trials)
    found = {category for trial in trials for category in memory_sizes(trial, total)}
    bars = [
        Bar(
            size=size,
            x=round(width * (index + _GAP / 2), 3),
            width=round(width * (1 - _GAP), 3),
            middle=round(width * (index + 0.5), 3),
            parts=_parts(trial, total, scale),
            fit=fit_of(trial, total),
            label=whole(size) if _is_labelled(index, len(trials)) else "",
            point=text(trial, found),
        )
        for index, (size, trial) in enumerate(sized)
    ]
    categories = [
        (name, CATEGORIES[name][0]) for name in ("free", *reversed(STACKED)) if name in found
    ]
    return bars, round(HEIGHT - BOTTOM - scale * total, 1), categories


def fit_of(trial: Trial, total_bytes: int) -> Fit:
    if not trial.fits:
        return Fit.FAILS
    high = trial.device_used_high_bytes
    return Fit.UNCERTAIN if high is not None and high > total_bytes else Fit.FITS


def _trials(result: AnalysisResult) -> list[Trial]:
    """One trial for each batch size whose memory is known, growing."""
    farthest = _FARTHEST * result.next_batch_size
    sizes = {trial.batch_size for trial in [*result.curve, *result.trials]}
    found = (trial_at(result, size) for size in sorted(sizes) if size <= farthest)
    known = [trial for trial in found if trial is not None and used_bytes(trial) is not None]
    has_recommended = any(t.batch_size == result.recommended_batch_size for t in known)
    return known if has_recommended else []


def _parts(trial: Trial, total_bytes: int, scale: float) -> list[Part]:
    parts = []
    y, top = float(HEIGHT - BOTTOM), float(TOP)
    sizes = memory_sizes(trial, total_bytes)
    for category in STACKED:
        height = min(sizes.get(category, 0) * scale, y - top)
        if height > 0:
            y -= height
            parts.append(Part(category, round(y, 1), round(height, 1)))
    return parts


def _is_labelled(index: int, count: int) -> bool:
    every = max(1, round(count / _LABELS))
    return index % every == 0


def point_of(trial: Trial, size: int, total: int, categories: Collection[str]) -> Point:
    """The text of one bar, without a speed."""
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


def _speed(samples_per_second: float | None, tokens: Tokens | None) -> str:
    if samples_per_second is None:
        return ""
    counted = tokens_per_second(samples_per_second, tokens)
    speed = SPEED.with_unit(samples_per_second)
    return f"{speed}, {counted}" if counted else speed


def _cost(samples_per_second: float | None, result: AnalysisResult) -> str:
    saved = result.savings
    if not samples_per_second or saved is None or not saved.price_per_hour_usd:
        return ""
    gpus = result.workload.world_size if result.workload else 1
    cost = usd_per_million_samples(saved.price_per_hour_usd * gpus, samples_per_second)
    return f"{COST.text(cost)} per million samples"


def marks_of(names: Mapping[int, Sequence[str]], bars: list[Bar]) -> list[Mark]:
    """The sizes with names, each on a line of its own, so that no two overlap."""
    middles = {bar.size: bar.middle for bar in bars}
    shown = [(size, roles) for size, roles in names.items() if size in middles]
    return [
        Mark(
            name=f"{', '.join(roles)} {whole(size)}",
            role="recommended" if "recommended" in roles else roles[0],
            x=middles[size],
            y=_MARK_HEIGHT * (index + 1),
            anchor="start" if middles[size] < 50 else "end",
        )
        for index, (size, roles) in enumerate(shown)
    ]


def _speed_line(trials: list[Trial], bars: list[Bar]) -> list[Segment]:
    """Samples per second of what fits, from zero at the bottom to the fastest near the top."""
    known = [
        (bar.middle, trial.samples_per_second)
        for trial, bar in zip(trials, bars, strict=True)
        if trial.fits and trial.samples_per_second
    ]
    if len(known) < 2:
        return []
    fastest = max(speed for _, speed in known)
    room = 0.92 * (HEIGHT - TOP - BOTTOM)
    at = [(x, round(HEIGHT - BOTTOM - room * speed / fastest, 1)) for x, speed in known]
    return [Segment(*one, *other) for one, other in pairwise(at)]


def _description(result: AnalysisResult) -> str:
    largest = LARGEST_BATCH.text(result.largest_batch_size)
    recommended = RECOMMENDED_BATCH.text(result.recommended_batch_size)
    return (
        f"Memory and speed by batch size for {result.model_name} on {result.gpu.name}, which has "
        f"{gib(result.gpu.total_bytes)}. Batch {largest} is the largest that fits, batch "
        f"{recommended} is recommended."
    )
