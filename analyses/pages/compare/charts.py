"""The curves of a comparison: memory and speed over batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyses.charts.gpu_map import short_name
from analyses.charts.layout import PlotlyDict, axis, limit_label, limit_line, plain_layout
from analyses.pages.compare.colours import colour, dash
from analyses.pages.compare.columns import Column
from engine.core.sizes import in_gib
from engine.interface.result import AnalysisResult
from engine.interface.trial import Trial

MANY_TIMES = 6
"""Ratio between its values from which on an axis is logarithmic."""

LABEL_HEIGHT = 0.06
"""Height of a label as a share of the largest limit, which is about the height of the chart."""

_UNNAMED: PlotlyDict = {"showlegend": False, "hoverinfo": "skip", "hovertemplate": None}
"""A mark on a line, which the line's own tooltip describes."""

_SPIKE: PlotlyDict = {
    "spikecolor": "var(--muted)",
    "spikethickness": 1,
    "spikedash": "solid",
}


def memory_chart(columns: Sequence[Column]) -> PlotlyDict:
    """Device used vs. batch size; peak allocated for a device without an allocator."""
    shown = _with_result(columns)
    traces = [
        _trace(column, number, [(p.batch_size, y) for p in points if (y := _memory_gib(p))], "GiB")
        for number, column, points in shown
    ]
    of_devices = all(trial.device_used_bytes for _, _, points in shown for trial in points)
    layout = _layout(shown, "Device used, GiB" if of_devices else "Device used or allocated, GiB")
    limits = _limits(shown)
    layout["shapes"] = [limit_line(total) for total in limits]
    layout["annotations"] = _labels(limits)
    return {"data": traces, "layout": layout}


def speed_chart(columns: Sequence[Column]) -> PlotlyDict:
    """Samples per second vs. batch size, with a diamond at each recommended batch."""
    shown = _with_result(columns)
    traces = []
    for number, column, points in shown:
        speeds = [(p.batch_size, s) for p in points if p.fits and (s := p.samples_per_second)]
        traces.append(_trace(column, number, speeds, "samples/s"))
        at = column.recommended
        if at and at.samples_per_second:
            marked = _trace(column, number, [(at.batch_size, at.samples_per_second)], "samples/s")
            diamond = {"color": colour(number), "size": 11, "symbol": "diamond"}
            traces.append(marked | {"mode": "markers", "marker": diamond} | _UNNAMED)
    return {
        "data": [trace for trace in traces if trace["x"]],
        "layout": _layout(shown, "Samples/s"),
    }


def _with_result(columns: Sequence[Column]) -> list[tuple[int, Column, list[Trial]]]:
    """The columns with a result: their place, which sets their colour, and their points."""
    return [(column.place, column, _points(column.result)) for column in columns if column.result]


def _limits(shown: Sequence[tuple[int, Column, list[Trial]]]) -> dict[int, str]:
    """The GPUs' memory in bytes, with the names of all whose lines would coincide."""
    by_gib: dict[int, dict[str, int]] = {}
    for _, column, _ in shown:
        if column.result:
            gpu = column.result.gpu
            by_gib.setdefault(round(in_gib(gpu.total_bytes)), {})[short_name(gpu.name)] = (
                gpu.total_bytes
            )
    return {max(gpus.values()): ", ".join(gpus) for gpus in by_gib.values()}


def _labels(limits: Mapping[int, str]) -> list[PlotlyDict]:
    """The labels of the limits; lines too near for two share one, above the upper line."""
    near: list[list[int]] = []
    for total in sorted(limits):
        if near and total - near[-1][-1] < LABEL_HEIGHT * max(limits):
            near[-1].append(total)
        else:
            near.append([total])
    return [limit_label(max(some), ", ".join(limits[one] for one in some)) for some in near]


def _points(result: AnalysisResult) -> list[Trial]:
    """One point per batch size, up to a little beyond the limit; trials take precedence."""
    by_size = {trial.batch_size: trial for trial in [*result.curve, *result.trials]}
    end = max([result.next_batch_size, *(trial.batch_size for trial in result.curve)])
    return [by_size[size] for size in sorted(by_size) if size <= end]


def _memory_gib(trial: Trial) -> float | None:
    used = trial.device_used_bytes or trial.peak_allocated_bytes
    return None if used is None else in_gib(used)


def _trace(
    column: Column, number: int, points: Sequence[tuple[int, float]], unit: str
) -> PlotlyDict:
    decimals = ",.2f" if unit == "GiB" else ",.3~r"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": column.label,
        "legendgroup": str(column.pk),
        "x": [batch for batch, _ in points],
        "y": [y for _, y in points],
        "line": {
            "color": colour(number),
            "width": 2,
            "dash": dash(number),
        },
        "hovertemplate": f"%{{y:{decimals}}} {unit} at batch %{{x:,}}",
    }


def _layout(shown: Sequence[tuple[int, Column, list[Trial]]], title: str) -> PlotlyDict:
    largest = [column.result.largest_batch_size for _, column, _ in shown if column.result]
    far_apart = bool(largest) and max(largest) >= MANY_TIMES * max(1, min(largest))
    batch_axis = axis("Batch size", ",d")
    if far_apart:
        batch_axis |= {"type": "log", "dtick": "D2", "title": {"text": "Batch size, log scale"}}
    return plain_layout(height=420) | {
        "showlegend": True,
        "hovermode": "x unified",
        "hoverdistance": -1,
        "xaxis": batch_axis | _SPIKE,
        "yaxis": axis(title, ",~g"),
    }
