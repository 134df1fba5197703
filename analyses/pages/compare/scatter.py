"""Any two numbers of a comparison as a chart, a dot for each analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from analyses.charts.layout import PlotlyDict, axis, plain_layout
from analyses.pages.compare.charts import MANY_TIMES
from analyses.pages.compare.colours import colour
from analyses.pages.compare.columns import Column
from analyses.pages.compare.rows import Cell, cell_of
from engine.answer.figures import COST, FIGURES, SPEED, TOKEN_COST, TOKEN_SPEED, Figure
from engine.core.sizes import GIB

_MIN_DOTS = 2
_TITLE_LINE = 32
"""Characters; a longer line of an axis's title is cut on a phone."""


@dataclass(frozen=True)
class _Scale:
    """The scale of an axis for one unit: times ``factor``, in ``unit``, as d3 formats them."""

    factor: float = 1
    unit: str = ""
    ticks: str = ",~g"
    hover: str = ",.3~r"


_SCALES = {
    "USD": _Scale(ticks="$,~g", hover="$,.3~r"),
    "bytes": _Scale(1 / GIB, "GiB"),
    "seconds": _Scale(1000, "ms"),
    "samples/s": _Scale(ticks="~s"),
    "tokens/s": _Scale(ticks="~s"),
}


@dataclass(frozen=True)
class Scatter:
    """The chart and the choice of its axes.

    Attributes:
        x, y: The two numbers.
        offered: All that at least two analyses have.
    """

    x: Figure
    y: Figure
    offered: list[Figure]
    chart: PlotlyDict


def scatter_of(columns: Sequence[Column], x: str = "", y: str = "") -> Scatter | None:
    """The chart of two numbers, with the ranges of those that have one.

    Args:
        columns: A dot for each that has both numbers.
        x: A name of :data:`FIGURES`; speed where fewer than two analyses have that number.
        y: The same; the usual one is the cost per million. Both are of tokens where all that have
            a speed have them, so that lengths compare.

    Returns:
        ``None`` where fewer than two analyses have a speed and a cost.
    """
    offered = {figure.name: figure for figure in FIGURES if _count(columns, figure) >= _MIN_DOTS}
    usual = _usual(columns)
    if not set(usual) <= set(offered):
        return None
    across, up = (
        offered.get(key, offered[other]) for key, other in zip((x, y), usual, strict=True)
    )
    chart = _chart(columns, across, up)
    return Scatter(across, up, list(offered.values()), chart)


def _usual(columns: Sequence[Column]) -> tuple[str, str]:
    has_tokens = _count(columns, TOKEN_SPEED) == _count(columns, SPEED)
    speed, cost = (TOKEN_SPEED, TOKEN_COST) if has_tokens else (SPEED, COST)
    return speed.name, cost.name


def _count(columns: Sequence[Column], figure: Figure) -> int:
    return sum(cell_of(figure, column).value is not None for column in columns)


def _chart(columns: Sequence[Column], across: Figure, up: Figure) -> PlotlyDict:
    dots = [
        _dot(column, (across, x), (up, y))
        for column in columns
        if (x := cell_of(across, column)).value is not None
        and (y := cell_of(up, column)).value is not None
    ]
    layout = plain_layout(height=420) | {
        "showlegend": True,
        "hoverdistance": -1,
        "xaxis": _axis(across, [dot["x"][0] for dot in dots]),
        "yaxis": _axis(up, [dot["y"][0] for dot in dots]),
    }
    return {"data": dots, "layout": layout}


def _dot(column: Column, across: tuple[Figure, Cell], up: tuple[Figure, Cell]) -> PlotlyDict:
    scales = [_scale(figure) for figure, _ in (across, up)]
    lines = [
        f"{figure.full_label}: %{{{name}:{scale.hover}}} {scale.unit}".rstrip()
        for name, (figure, _), scale in zip("xy", (across, up), scales, strict=True)
    ]
    (x, error_x), (y, error_y) = (
        _values(cell, scale.factor, column.place)
        for (_, cell), scale in zip((across, up), scales, strict=True)
    )
    return {
        "type": "scatter",
        "mode": "markers",
        "name": column.label,
        "x": x,
        "y": y,
        "error_x": error_x,
        "error_y": error_y,
        "marker": {"color": colour(column.place), "size": 12},
        "hovertemplate": "<br>".join([f"<b>{escape(column.label)}</b>", *lines])
        + "<extra></extra>",
    }


def _values(cell: Cell, factor: float, place: int) -> tuple[list[float], PlotlyDict]:
    """A number, and its interval as a thin bar in its colour."""
    value = (cell.value or 0) * factor
    if cell.low is None or cell.high is None:
        return [value], {"visible": False}
    return [value], {
        "type": "data",
        "symmetric": False,
        "array": [cell.high * factor - value],
        "arrayminus": [value - cell.low * factor],
        "color": colour(place),
        "thickness": 1,
        "width": 3,
    }


def _scale(figure: Figure) -> _Scale:
    return _SCALES.get(figure.unit.name, _Scale())


def _axis(figure: Figure, values: Sequence[float]) -> PlotlyDict:
    """An axis, logarithmic where its values are far apart."""
    scale, least = _scale(figure), min(values, default=0)
    is_log = least > 0 and max(values) >= MANY_TIMES * least
    words = [figure.full_label, *filter(None, [scale.unit, "log scale" if is_log else ""])]
    made = axis("<br>".join(wrap(", ".join(words), _TITLE_LINE)), scale.ticks)
    return made | {"type": "log", "dtick": "D2"} if is_log else made
