"""The chart of memory and speed vs. batch size, with the knee of the speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analyses.charts.breakdown import used_bytes
from analyses.charts.layout import PlotlyDict, axis, limit_label, limit_line, plain_layout
from analyses.formatting import gib, gib_with_unit, whole
from analyses.stored_result import trial_at
from engine.answer.recommendation import ENOUGH_SPEED
from engine.gpus import GIB
from engine.result import AnalysisResult, Source, Trial

Axis = Callable[[Trial], float | None]

_MEMORY_PANEL = ("x", "y")
_SPEED_PANEL = ("x", "y2")
_SPEED_SHARE = 0.32
_GAP = 0.09
_FARTHEST = 2
"""Trials beyond this multiple of the limit are left out: they would squeeze all the others."""


def batch_size_chart(result: AnalysisResult) -> PlotlyDict:
    """Memory vs. batch size, and below it samples per second where they are known."""
    points = [*result.curve, *result.trials]
    farthest = _FARTHEST * result.next_batch_size
    left_out = [point for point in result.trials if point.batch_size > farthest]
    result = replace(result, trials=[p for p in result.trials if p.batch_size <= farthest])
    has_speed = any(_speed(point) for point in points)
    traces = _band(result.curve)
    traces += _panel(result, _memory_gib, _MEMORY_PANEL, "GiB", in_legend=True)
    if has_speed:
        traces += _panel(result, _speed, _SPEED_PANEL, "samples/s", in_legend=False)
    layout = _layout(result, _memory_name(points), has_speed)
    layout["annotations"] += [_note_of(left_out)] if left_out else []
    return {"data": traces, "layout": layout}


def chart_description(result: AnalysisResult) -> str:
    """The chart as text, for screen readers."""
    knee = knee_of(result)
    return (
        f"Memory vs. batch size for {result.model_name} on {result.gpu.name}, which has "
        f"{gib_with_unit(result.gpu.total_bytes)}. Batch {result.largest_batch_size:,} is the "
        f"largest that fits. {f'{knee.sentence()} ' if knee else ''}"
        "The table of trials below has the same numbers."
    )


def _band(curve: Sequence[Trial]) -> list[PlotlyDict]:
    """The range of the predicted memory; nothing where it is not known."""
    known = [
        (point.batch_size, point.device_used_low_bytes, point.device_used_high_bytes)
        for point in sorted(curve, key=lambda point: point.batch_size)
    ]
    ranges = [(size, low, high) for size, low, high in known if None not in (low, high)]
    if not ranges:
        return []
    sizes, lows, highs = zip(*ranges, strict=True)
    edge: PlotlyDict = {
        "type": "scatter",
        "name": "Range (predicted)",
        "legendgroup": "Range (predicted)",
        "mode": "lines",
        "line": {"width": 0},
        "x": list(sizes),
        "xaxis": "x",
        "yaxis": "y",
        "hoverinfo": "skip",
    }
    low_edge = edge | {"y": [_gib(low) for low in lows], "showlegend": False}
    high_edge = edge | {
        "y": [_gib(high) for high in highs],
        "fill": "tonexty",
        "fillcolor": "var(--band)",
    }
    return [low_edge, high_edge]


def _gib(size_bytes: int) -> float:
    return round(size_bytes / GIB, 4)


def _memory_gib(trial: Trial) -> float | None:
    used = used_bytes(trial)
    return None if used is None else _gib(used)


def _memory_name(points: Sequence[Trial]) -> str:
    if any(point.device_used_bytes is not None for point in points):
        return "Device used"
    reserved = any(point.peak_reserved_bytes is not None for point in points)
    return "Peak reserved" if reserved else "Peak allocated"


def _speed(trial: Trial) -> float | None:
    """Samples per second; a batch that does not fit has none, whatever was predicted for it."""
    return trial.samples_per_second if trial.fits else None


def _panel(
    result: AnalysisResult, value: Axis, panel: tuple[str, str], unit: str, *, in_legend: bool
) -> list[PlotlyDict]:
    """The traces of one panel: the curve, the trials by source, and the two chosen batches."""
    groups = [("Curve", "curve", _source_of(result.curve), result.curve)]
    for source in (Source.PREDICTED, Source.MEASURED):
        trials = [trial for trial in result.trials if trial.source is source]
        groups += [
            ("Fits", "fits", source, [trial for trial in trials if trial.fits]),
            ("Does not fit", "fails", source, [trial for trial in trials if not trial.fits]),
        ]
    chosen_sizes = [
        ("Current", "current", result.current_batch_size),
        ("Recommended", "recommended", result.recommended_batch_size),
    ]
    if result.current_batch_size == result.recommended_batch_size:
        chosen_sizes = [("Current and recommended", "recommended", result.current_batch_size)]
    for name, style, size in chosen_sizes:
        chosen = trial_at(result, size)
        if chosen:
            groups.append((name, style, chosen.source, [chosen]))
    traces = (
        _trace(name, style, source, points, value, panel, unit) | {"showlegend": in_legend}
        for name, style, source, points in groups
    )
    return [trace for trace in traces if trace["x"]]


def _source_of(points: Sequence[Trial]) -> Source:
    """Measured only if every point is."""
    measured = points and all(point.source is Source.MEASURED for point in points)
    return Source.MEASURED if measured else Source.PREDICTED


def _trace(
    name: str,
    style: str,
    source: Source,
    points: Sequence[Trial],
    value: Axis,
    panel: tuple[str, str],
    unit: str,
) -> PlotlyDict:
    placed = sorted(
        (point.batch_size, y, _range_of(point) if unit == "GiB" else "")
        for point in points
        if (y := value(point)) is not None
    )
    decimals = ",.2f" if unit == "GiB" else ",.1f"
    return {
        "type": "scatter",
        "name": f"{name} ({source})",
        "legendgroup": f"{name} ({source})",
        "x": [batch for batch, _, _ in placed],
        "y": [y for _, y, _ in placed],
        "text": [words for _, _, words in placed],
        "xaxis": panel[0],
        "yaxis": panel[1],
        "hovertemplate": f"batch %{{x:,}}: %{{y:{decimals}}} {unit}%{{text}}"
        f"<extra>{name}, {source}</extra>",
    } | _STYLES[style]


def _range_of(trial: Trial) -> str:
    """The range of a predicted memory, for its tooltip."""
    low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
    return "" if low is None or high is None else f" ({gib(low)}\N{EN DASH}{gib(high)})"


_STYLES: dict[str, PlotlyDict] = {
    "curve": {"mode": "lines", "line": {"color": "var(--line)", "width": 2}},
    "fits": {
        "mode": "markers",
        "marker": {"color": "var(--text)", "size": 7, "symbol": "circle-open"},
    },
    "fails": {
        "mode": "markers",
        "marker": {"color": "var(--bad)", "size": 9, "symbol": "x-thin-open"},
    },
    "current": {"mode": "markers", "marker": {"color": "var(--bad)", "size": 11}},
    "recommended": {
        "mode": "markers",
        "marker": {"color": "var(--good)", "size": 12, "symbol": "diamond"},
    },
}


def _layout(result: AnalysisResult, memory_name: str, has_speed: bool) -> PlotlyDict:
    total = result.gpu.total_bytes
    batch_axis = axis("Batch size", ",d") | {"anchor": "y2" if has_speed else "y"}
    bottom = _SPEED_SHARE + _GAP if has_speed else 0.0
    layout = plain_layout(height=520 if has_speed else 380) | {
        "xaxis": batch_axis,
        "yaxis": axis(f"{memory_name}, GiB", ",~g") | {"domain": [bottom, 1]},
        "shapes": [limit_line(total)],
        "annotations": [limit_label(total, f"GPU memory {gib_with_unit(total)}")],
    }
    if has_speed:
        layout["yaxis2"] = axis("Samples/s", ",~g") | {"domain": [0, _SPEED_SHARE]}
        if knee := knee_of(result):
            layout["shapes"] += knee.lines("y2")
            end = max(point.batch_size for point in (*result.curve, *result.trials))
            layout["annotations"] += knee.labels("y2", end)
    return layout


def _note_of(left_out: Sequence[Trial]) -> PlotlyDict:
    sizes = ", ".join(sorted({whole(trial.batch_size) for trial in left_out}))
    return {
        "text": f"off the chart: batch {sizes} \N{RIGHTWARDS ARROW}",
        "xref": "paper",
        "x": 1,
        "xanchor": "right",
        "yref": "paper",
        "y": 1,
        "yanchor": "top",
        "showarrow": False,
        "font": {"color": "var(--bad-text)", "size": 11},
    }


_ENOUGH = f"{ENOUGH_SPEED * 100:.0f}%"


@dataclass(frozen=True)
class Knee:
    """The recommended batch, and the speed that is enough.

    Attributes:
        samples_per_second: The speed of the recommended batch.
        enough: Samples per second; a share of the best speed that is allowed.
        source: Of the best speed.
        is_limited: Whether safety in memory or the global batch rule out a batch that fits and is
            faster.
    """

    batch_size: int
    samples_per_second: float
    enough: float
    source: Source
    is_limited: bool

    @property
    def is_enough(self) -> bool:
        """Whether no batch that fits is notably faster."""
        return not self.is_limited and self.samples_per_second >= self.enough

    def lines(self, y_axis: str) -> list[PlotlyDict]:
        """A line at the speed that is enough, and one down from the recommended batch."""
        level = {"xref": "paper", "x0": 0, "x1": 1, "y0": self.enough, "y1": self.enough}
        drop = {
            "x0": self.batch_size,
            "x1": self.batch_size,
            "y0": 0,
            "y1": self.samples_per_second,
        }
        return [
            {"type": "line", "yref": y_axis, "line": _GREEN | {"dash": dash}} | place
            for place, dash in ((level, "dash"), (drop, "dot"))
        ]

    def labels(self, y_axis: str, end: int) -> list[PlotlyDict]:
        """The labels of both lines, clear of each other; ``end`` is the axis's largest batch."""
        is_left = self.batch_size <= end / 2
        level = {
            "text": f"{_ENOUGH} of the best{' allowed' if self.is_limited else ''} ({self.source})",
            "xref": "paper",
            "x": 1 if is_left else 0,
            "xanchor": "right" if is_left else "left",
            "y": self.enough,
            "yanchor": "top",
        }
        foot = {
            "text": f"{'knee: ' if self.is_enough else ''}batch {whole(self.batch_size)}",
            "x": self.batch_size,
            "xanchor": "left" if is_left else "right",
            "xshift": 4 if is_left else -4,
            "y": 0,
            "yanchor": "bottom",
        }
        font = {"color": "var(--good-text)", "size": 11}
        return [
            {"yref": y_axis, "showarrow": False, "font": font} | place for place in (level, foot)
        ]

    def sentence(self) -> str:
        """The same as text, for screen readers."""
        size = whole(self.batch_size)
        if self.is_enough:
            return f"Batch {size} is the smallest that reaches {_ENOUGH} of top speed."
        return f"Batch {size} is recommended; a larger one would be faster."


_GREEN = {"color": "var(--good)", "width": 1}


def knee_of(result: AnalysisResult) -> Knee | None:
    """The knee; ``None`` where speeds are not known."""
    chosen = trial_at(result, result.recommended_batch_size)
    if chosen is None or chosen.samples_per_second is None:
        return None
    best = _fastest(result, result.largest_batch_size) or chosen
    allowed = _fastest(result, max(_largest_allowed(result), chosen.batch_size)) or chosen
    return Knee(
        batch_size=chosen.batch_size,
        samples_per_second=chosen.samples_per_second,
        enough=ENOUGH_SPEED * _knee_speed(allowed),
        source=allowed.source,
        is_limited=_knee_speed(allowed) < ENOUGH_SPEED * _knee_speed(best),
    )


def _largest_allowed(result: AnalysisResult) -> int:
    """The largest batch that memory and the global batch let the engine recommend."""
    safe = result.safe_batch_size
    allowed = result.largest_batch_size if safe is None else safe
    if result.global_batch is None:
        return allowed
    gpus = result.workload.world_size if result.workload else 1
    return min(allowed, result.global_batch.size // gpus)


def _fastest(result: AnalysisResult, largest: int) -> Trial | None:
    known = [
        trial
        for trial in (*result.trials, *result.curve)
        if trial.fits and _knee_speed(trial) and trial.batch_size <= largest
    ]
    return max(known, key=_knee_speed, default=None)


def _knee_speed(trial: Trial) -> float:
    return trial.samples_per_second or 0.0
