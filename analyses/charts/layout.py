"""Layout shared by the charts: the plot, its axes, and the line at the GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core.sizes import GIB

PlotlyDict = dict[str, Any]
"""A plotly figure, or a part of one."""

SPIKE: PlotlyDict = {"spikecolor": "var(--muted)", "spikethickness": 1, "spikedash": "solid"}
"""Spike line of an axis with unified tooltips, at the point they describe."""


@dataclass(frozen=True)
class Tick:
    """A value on an axis, where it stands."""

    at: float
    label: str


def plain_layout(height: int, legend_y: float = 1.02) -> PlotlyDict:
    """Margins, fonts, colours and the legend.

    Args:
        height: Height of the whole chart, in pixels.
        legend_y: Position of the legend, as a share of the plot's height.
    """
    return {
        "autosize": True,
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 8, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "var(--muted)", "family": "var(--font)", "size": 12},
        "hoverlabel": {"bgcolor": "var(--card)", "font": {"color": "var(--text)"}},
        "hovermode": "closest",
        "dragmode": False,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": legend_y,
            "yanchor": "bottom",
        },
    }


def axis(title: str, tick_format: str) -> PlotlyDict:
    """An axis from zero, with its title and grid."""
    return {
        "title": {"text": title, "standoff": 8},
        "tickformat": tick_format,
        "rangemode": "tozero",
        "fixedrange": True,
        "gridcolor": "var(--grid)",
        "zerolinecolor": "var(--grid)",
        "automargin": True,
    }


def limit_line(total_bytes: int) -> PlotlyDict:
    """The dashed line at a GPU's memory."""
    height = total_bytes / GIB
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": height,
        "y1": height,
        "line": {"color": "var(--muted)", "width": 1, "dash": "dash"},
    }


def limit_label(total_bytes: int, text: str) -> PlotlyDict:
    """The label of that line."""
    return {
        "text": text,
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "y": total_bytes / GIB,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": "var(--text)", "size": 11},
    }
