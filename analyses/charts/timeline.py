"""The chart of memory over one training step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from analyses.charts.breakdown import CATEGORIES, category_name
from analyses.charts.layout import SPIKE, PlotlyDict, axis, plain_layout
from engine.core.numbers import whole
from engine.core.sizes import gib, in_gib
from engine.interface.result import AnalysisResult, TimelinePoint

_NARROWEST_NAMED = 0.06
"""A phase shorter than this share of the step has no room for its name."""

_INNERMOST = ("optimizer_state", "parameters", "gradients", "casts", "workspaces", "inputs")
"""Categories that change least are at the bottom, so that the hills above them can be read."""


def timeline_chart(result: AnalysisResult) -> PlotlyDict:
    """Live tensors by category, stacked, from the start of a step to its end."""
    points = result.timeline
    return {
        "data": [*(_area(points, name) for name in _stacked(points)), _total(points)],
        "layout": _layout(points),
    }


def timeline_description(result: AnalysisResult) -> str:
    """The chart as text, for screen readers; empty without a timeline."""
    if not result.timeline:
        return ""
    peak = _peak(result.timeline)
    phase = "the optimizer step" if peak.phase == "optimizer" else peak.phase
    return (
        f"Memory of tensors over one training step at batch "
        f"{whole(result.recommended_batch_size)}, by category. It peaks in "
        f"{phase}, at {gib(sum(peak.bytes.values()))}."
    )


def timeline_note(result: AnalysisResult) -> str:
    """Says which micro-batches are shown, where there are more; mostly empty."""
    shown = sum(phase == "forward" for phase, _, _ in _phases(result.timeline))
    accumulated = result.workload.gradient_accumulation if result.workload else 1
    if result.global_batch:
        accumulated = result.global_batch.gradient_accumulation
    if not 0 < shown < accumulated:
        return ""
    return f"Shows {shown} of {whole(accumulated)} micro-batches; the rest look like the last one."


def _stacked(points: Sequence[TimelinePoint]) -> list[str]:
    """The categories that occur, from bottom to top."""
    used = {name for point in points for name, size in point.bytes.items() if size}
    order = [*_INNERMOST, *(name for name in CATEGORIES if name not in _INNERMOST)]
    return [*(name for name in order if name in used), *sorted(used - set(order))]


def _area(points: Sequence[TimelinePoint], category: str) -> PlotlyDict:
    known = category in CATEGORIES
    return _line(points, category_name(category)) | {
        "y": [in_gib(point.bytes.get(category, 0)) for point in points],
        "stackgroup": "tensors",
        "line": {"width": 0, "shape": "hv"},
        "fillcolor": f"var(--of-{category})" if known else "var(--neutral)",
    }


def _total(points: Sequence[TimelinePoint]) -> PlotlyDict:
    return _line(points, "All tensors") | {
        "y": [in_gib(sum(point.bytes.values())) for point in points],
        "line": {"color": "var(--text)", "width": 1, "shape": "hv"},
        "showlegend": False,
    }


def _line(points: Sequence[TimelinePoint], name: str) -> PlotlyDict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [point.at for point in points],
        "hovertemplate": "%{y:,.2f} GiB",
    }


def _layout(points: Sequence[TimelinePoint]) -> PlotlyDict:
    layout = plain_layout(height=400, legend_y=1.08)
    return layout | {
        "hovermode": "x unified",
        "legend": layout["legend"] | {"traceorder": "normal"},
        "xaxis": {
            "title": {"text": "Progress through the step", "standoff": 8},
            "tickformat": ".0%",
            "hoverformat": ".1%",
            "range": [0, 1],
            "fixedrange": True,
            "gridcolor": "var(--grid)",
            "zeroline": False,
            **SPIKE,
            "automargin": True,
        },
        "yaxis": axis("Tensors, GiB", ",~g"),
        "shapes": [_border(begin) for _, begin, _ in _phases(points)[1:]],
        "annotations": [
            _phase_label(phase, (begin + end) / 2)
            for phase, begin, end in _phases(points)
            if end - begin >= _NARROWEST_NAMED
        ]
        + [_peak_label(_peak(points))],
    }


def _phases(points: Sequence[TimelinePoint]) -> list[tuple[str, float, float]]:
    """Each stretch of a phase, with its begin and end."""
    begins = [
        (phase, next(group).at) for phase, group in groupby(points, key=lambda point: point.phase)
    ]
    ends = [*(begin for _, begin in begins), 1.0][1:]
    stretches = [(phase, begin, end) for (phase, begin), end in zip(begins, ends, strict=True)]
    return [stretch for stretch in stretches if stretch[1] < stretch[2]]


def _border(at: float) -> PlotlyDict:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": at,
        "x1": at,
        "y0": 0,
        "y1": 1.06,
        "line": {"color": "var(--muted)", "width": 1, "dash": "dot"},
    }


def _phase_label(phase: str, middle: float) -> PlotlyDict:
    return {
        "text": phase,
        "xref": "x",
        "x": middle,
        "yref": "paper",
        "y": 1.0,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": "var(--muted)", "size": 10},
    }


def _peak_label(peak: TimelinePoint) -> PlotlyDict:
    left = peak.at < 0.5
    return {
        "text": f"peak {gib(sum(peak.bytes.values()))}",
        "x": peak.at,
        "y": in_gib(sum(peak.bytes.values())),
        "xanchor": "left" if left else "right",
        "xshift": 6 if left else -6,
        "showarrow": False,
        "font": {"color": "var(--text)", "size": 11},
    }


def _peak(points: Sequence[TimelinePoint]) -> TimelinePoint:
    return max(points, key=lambda point: sum(point.bytes.values()))
