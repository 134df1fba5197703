"""The chart of memory and speed against the batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from analyses.charts.knee import knee_of
from analyses.charts.memory_bars import used_bytes
from analyses.charts.parts import PlotlyDict, axis, limit_label, limit_line, plain_layout
from analyses.formatting import gib, gib_with_unit, whole
from analyses.stored_result import trial_at
from engine.gpus import GIB
from engine.result import AnalysisResult, Source, Trial

Axis = Callable[[Trial], float | None]

_MEMORY_PANEL = ("x", "y")
_SPEED_PANEL = ("x", "y2")
_SPEED_SHARE = 0.32
_GAP = 0.09
_FARTHEST = 2
"""Batches beyond so many times the limit are left out: they would squeeze all the others."""


def batch_size_chart(result: AnalysisResult) -> PlotlyDict:
    """Memory against batch size, and below it samples per second where they are known."""
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
    """What the chart shows, in words, for those who cannot see it."""
    knee = knee_of(result)
    return (
        f"Memory against batch size for {result.model_name} on {result.gpu.name}, which has "
        f"{gib_with_unit(result.gpu.total_bytes)}. Batch {result.largest_batch_size:,} is the "
        f"largest that fits. {f'{knee.in_words()} ' if knee else ''}"
        "The table of trials below has the same figures."
    )


def _band(curve: Sequence[Trial]) -> list[PlotlyDict]:
    """The range of the predicted memory, low to high; nothing where none is known."""
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
    """Samples per second; a step that does not fit has no speed, whatever was predicted for it."""
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
    """The range of a predicted trial's memory, for its tooltip."""
    low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
    return "" if low is None or high is None else f" ({gib(low)} to {gib(high)})"


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
