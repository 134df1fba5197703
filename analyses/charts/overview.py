"""The charts of the overview: analyses by week, memory in use by GPU, errors of predictions."""

from __future__ import annotations

from collections.abc import Sequence

from analyses.charts.gpu_map import short_name
from analyses.charts.layout import SPIKE, PlotlyDict, axis, plain_layout
from analyses.formatting import fine_share, model_name
from analyses.models import StatusGroup
from analyses.overview.accuracy import Accuracy
from analyses.overview.fullness import GpuUse
from analyses.overview.weeks import Week
from analyses.training_runs.prediction_errors import Compared
from engine.answer.figures import STEP_TIME
from engine.core.numbers import milliseconds, share, whole
from engine.core.sizes import gib
from engine.prediction.timing.past_errors import PredictedQuantity

_HEIGHT = 340
_MIN_FOR_OWN_TICKS = 8
"""Fewer analyses in a week have a tick each; plotly would put some between whole numbers."""

_GROUPS = {
    StatusGroup.SUCCEEDED: ("Succeeded", "var(--good)"),
    StatusGroup.FAILED: ("Failed or does not fit", "var(--bad)"),
    StatusGroup.CANCELLED: ("Cancelled", "var(--neutral)"),
    StatusGroup.UNFINISHED: ("Queued or running", "var(--predicted)"),
}
_PREDICTED = {PredictedQuantity.MEMORY: "Peak memory", PredictedQuantity.STEP_TIME: STEP_TIME.label}


def weeks_chart(weeks: Sequence[Week]) -> PlotlyDict:
    """Analyses by week, stacked by status; those that do not occur are left out."""
    data = [
        {
            "type": "bar",
            "name": name,
            "x": [week.monday.isoformat() for week in weeks],
            "y": [week.counts[group] for week in weeks],
            "marker": {"color": colour},
            "hovertemplate": "%{y:,}",
        }
        for group, (name, colour) in _GROUPS.items()
        if any(week.counts[group] for week in weeks)
    ]
    most = max(sum(week.counts.values()) for week in weeks)
    layout = plain_layout(_HEIGHT)
    layout |= {
        "barmode": "stack",
        "bargap": 0.25,
        "hovermode": "x unified",
        "legend": layout["legend"] | {"traceorder": "normal"},
        "xaxis": {
            "title": {"text": "Week (UTC)", "standoff": 8},
            "type": "date",
            "fixedrange": True,
            "tickformat": "%-d %b",
            "hoverformat": "Week of %-d %b %Y",
            **SPIKE,
            "automargin": True,
        },
        "yaxis": axis("Analyses", ",d") | ({"dtick": 1} if most < _MIN_FOR_OWN_TICKS else {}),
    }
    return {"data": data, "layout": layout}


def weeks_description(weeks: Sequence[Week]) -> str:
    """The chart as text, for screen readers."""
    totals = {name: sum(w.counts[group] for w in weeks) for group, (name, _) in _GROUPS.items()}
    parts = ", ".join(f"{whole(count)} {name.lower()}" for name, count in totals.items() if count)
    return f"Analyses in the last {len(weeks)} weeks: {parts or 'none'}."


def use_chart(kinds: Sequence[GpuUse]) -> PlotlyDict:
    """Memory in use by GPU, now and with the recommended batches; most workloads on top."""
    names = [short_name(kind.name) for kind in reversed(kinds)]
    layout = plain_layout(_HEIGHT)
    now = {
        "type": "bar",
        "orientation": "h",
        "name": "Now",
        "y": names,
        "x": [round(kind.now, 4) for kind in reversed(kinds)],
        "customdata": [
            [
                gib(round(kind.now * kind.total_bytes)),
                gib(kind.total_bytes),
                f"{whole(kind.workloads)} workload{'' if kind.workloads == 1 else 's'}",
            ]
            for kind in reversed(kinds)
        ],
        "hovertemplate": "%{x:.0%}, %{customdata[0]} of %{customdata[1]}, %{customdata[2]}",
        "marker": {"color": "var(--line)"},
    }
    then = {
        "type": "scatter",
        "mode": "markers",
        "name": "With the recommended batches",
        "y": names,
        "x": [round(kind.recommended, 4) for kind in reversed(kinds)],
        "hovertemplate": "%{x:.0%}",
        "marker": {"color": "var(--good)", "symbol": "diamond", "size": 10},
    }
    across = axis("GPU memory in use, median", ".0%") | {"range": [0, 1]}
    layout |= {
        "hovermode": "y unified",
        "bargap": 0.45,
        "legend": layout["legend"] | {"traceorder": "normal"},
        "xaxis": across,
        "yaxis": {"fixedrange": True, "automargin": True, "type": "category", **SPIKE},
    }
    return {"data": [now, then], "layout": layout}


def use_description(kinds: Sequence[GpuUse]) -> str:
    """The chart as text, for screen readers."""
    parts = "; ".join(
        f"{kind.name} {share(kind.now)} now, {share(kind.recommended)} with the recommended batches"
        for kind in kinds
    )
    return f"GPU memory in use, the median of each GPU's workloads: {parts}."


def accuracy_chart(accuracies: Sequence[Accuracy]) -> PlotlyDict:
    """Each measurement's error, and the box of the middle half."""
    shown = [one for one in reversed(accuracies) if one.compared]
    data = [
        {
            "type": "box",
            "orientation": "h",
            "name": _PREDICTED[one.of],
            "x": [round(compared.error, 5) for compared in one.compared],
            "y": [_PREDICTED[one.of]] * len(one.compared),
            "text": [_compared_text(compared) for compared in one.compared],
            "hovertemplate": "%{x:+.1%}<br>%{text}<extra></extra>",
            "hoveron": "points",
            "boxpoints": "all",
            "jitter": 0.6,
            "pointpos": 0,
            "marker": {"color": "var(--line)", "size": 6, "opacity": 0.75},
            "line": {"color": "var(--muted)", "width": 1},
            "fillcolor": "var(--band)",
            "showlegend": False,
        }
        for one in shown
    ]
    layout = plain_layout(_HEIGHT)
    layout |= {
        "hoverdistance": -1,
        "xaxis": axis("Prediction error", "+.0%")
        | {"rangemode": "normal", "zerolinecolor": "var(--muted)"},
        "yaxis": {"fixedrange": True, "automargin": True, "type": "category"},
    }
    return {"data": data, "layout": layout}


def _compared_text(compared: Compared) -> str:
    def text(value: float) -> str:
        if compared.of is PredictedQuantity.MEMORY:
            return gib(round(value))
        return f"{milliseconds(value)} ms"

    return (
        f"#{compared.analysis_id} {model_name(compared.model)}, batch {whole(compared.batch_size)}"
        f"<br>predicted {text(compared.predicted)}, measured {text(compared.measured)}"
    )


def accuracy_description(accuracies: Sequence[Accuracy]) -> str:
    """The chart as text, for screen readers."""
    parts = "; ".join(
        f"{_PREDICTED[one.of]} {fine_share(one.own.median)} median error over "
        f"{whole(one.own.count)}"
        for one in accuracies
        if one.own
    )
    return f"Predictions vs. this lab's own measurements: {parts}."
