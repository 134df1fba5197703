"""The chart of memory by category against the batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyses.charts.memory_bars import CATEGORIES, category_name, memory_sizes, used_bytes
from analyses.charts.parts import PlotlyDict, axis, limit_label, limit_line, plain_layout
from analyses.formatting import gib_with_unit, whole
from engine.gpus import GIB
from engine.result import AnalysisResult, Source, Trial

_FROM_THE_BOTTOM = (
    "context", "optimizer_state", "parameters", "gradients", "casts", "workspaces", "inputs",
    "activations", "temporaries", "tensors", "cached",
)  # fmt: skip
"""What the batch size changes least lies at the bottom, so that what grows can be read."""


_UPPER, _LOWER = 0.7, 0.6
"""How high the names of the two batches stand, as a share of the plot: never over each other."""


@dataclass(frozen=True)
class _Mark:
    """An upright line at one batch size, with its name."""

    batch_size: int
    name: str
    colour: str
    height: float

    def line(self) -> PlotlyDict:
        return {
            "type": "line",
            "x0": self.batch_size,
            "x1": self.batch_size,
            "yref": "paper",
            "y0": 0,
            "y1": self.height,
            "line": {"color": f"var(--{self.colour})", "width": 1.5, "dash": "dot"},
        }

    def label(self, end: int) -> PlotlyDict:
        """The name, on the side where there is room; ``end`` is the axis's largest batch."""
        return {
            "text": f"{self.name} {whole(self.batch_size)}",
            "x": self.batch_size,
            "xanchor": "left" if self.batch_size <= end / 2 else "right",
            "yref": "paper",
            "y": self.height,
            "showarrow": False,
            "bgcolor": "var(--card)",
            "font": {"color": f"var(--{self.colour}-text)", "size": 11},
        }


def breakdown_points(result: AnalysisResult) -> list[Trial]:
    """The batch sizes whose memory is known by category, all from the source of the curve.

    A measured point among predicted ones would be a notch in every area that is none.
    """
    source = breakdown_source(result)
    known = [trial for trial in (*result.trials, *result.curve) if trial.breakdown]
    by_size = {trial.batch_size: trial for trial in known if trial.source is source}
    beyond = max((point.batch_size for point in result.curve), default=result.next_batch_size)
    return [by_size[size] for size in sorted(by_size) if size <= beyond]


def breakdown_source(result: AnalysisResult) -> Source:
    """Where the chart's figures come from."""
    return next((point.source for point in result.curve if point.breakdown), result.source)


def breakdown_chart(result: AnalysisResult) -> PlotlyDict | None:
    """Memory by category, stacked, up to the GPU's memory; ``None`` with fewer than two points."""
    points = breakdown_points(result)
    if len(points) < 2:
        return None
    sizes = [memory_sizes(point, result.gpu.total_bytes) for point in points]
    used = {name for each in sizes for name in each}
    batches = [point.batch_size for point in points]
    areas = [
        _area(name, batches, [each.get(name, 0) for each in sizes])
        for name in _FROM_THE_BOTTOM
        if name in used
    ]
    total = _line("All of it", batches, [used_bytes(point) or 0 for point in points]) | {
        "line": {"color": "var(--text)", "width": 1},
        "showlegend": False,
    }
    return {"data": [*areas, total], "layout": _layout(result, batches)}


def breakdown_description(result: AnalysisResult) -> str:
    """What the chart shows, in words, for those who cannot see it; empty without a chart."""
    points = breakdown_points(result)
    if len(points) < 2:
        return ""
    first, last = points[0], points[-1]
    grown = {
        name: size - first.breakdown.get(name, 0)
        for name, size in last.breakdown.items()
        if name in CATEGORIES
    }
    most = max(grown, key=lambda name: grown[name], default="")
    growth = f" Most of what it adds: {category_name(most).lower()}." if most else ""
    return (
        f"Memory by category from batch {whole(first.batch_size)} to {whole(last.batch_size)}, "
        f"against the GPU's {gib_with_unit(result.gpu.total_bytes)}.{growth}"
    )


def _area(category: str, batches: Sequence[int], sizes: Sequence[int]) -> PlotlyDict:
    return _line(category_name(category), batches, sizes) | {
        "stackgroup": "memory",
        "line": {"width": 0},
        "fillcolor": f"var(--of-{category})",
    }


def _line(name: str, batches: Sequence[int], sizes: Sequence[int]) -> PlotlyDict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(batches),
        "y": [round(size / GIB, 4) for size in sizes],
        "hovertemplate": "%{y:,.2f} GiB",
    }


def _layout(result: AnalysisResult, batches: Sequence[int]) -> PlotlyDict:
    total = result.gpu.total_bytes
    layout = plain_layout(height=400)
    marks = [_Mark(result.recommended_batch_size, "recommended", "good", _UPPER)]
    if result.current_batch_size != result.recommended_batch_size:
        marks.append(_Mark(result.current_batch_size, "current", "bad", _LOWER))
    shown = [mark for mark in marks if mark.batch_size <= batches[-1]]
    return layout | {
        "hovermode": "x unified",
        "legend": layout["legend"] | {"traceorder": "normal"},
        "xaxis": axis("Batch size", ",d") | {"range": [0, batches[-1]], "hoverformat": ",d"},
        "yaxis": axis("Memory, GiB", ",~g"),
        "shapes": [limit_line(total), *(mark.line() for mark in shown)],
        "annotations": [
            limit_label(total, f"GPU memory {gib_with_unit(total)}"),
            *(mark.label(batches[-1]) for mark in shown),
        ],
    }
