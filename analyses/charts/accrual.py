"""The chart of what has been saved over time, and the bar of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import floor, log10

from analyses.charts.layout import SPIKE, PlotlyDict, axis, plain_layout
from analyses.savings.accrual import Amount, Point, Projection, Saved
from engine.core.numbers import usd

PARTS = {"verified": "Verified", "self_reported": "Self-reported", "potential": "Potential"}
"""The parts of savings, from bottom to top, and their names."""


_FEW_DAYS, _A_YEAR = 100, 366


def accrual_chart(points: Sequence[Point], projection: Projection | None = None) -> PlotlyDict:
    """Saved so far, stacked: verified, self-reported and, above them, potential."""
    data = [_area(points, part) for part in PARTS]
    if projection is not None:
        data.append(_projected(points[-1], projection))
    layout = plain_layout(height=340, legend_y=1.03)
    layout |= {
        "hovermode": "x unified",
        "legend": layout["legend"] | {"traceorder": "normal"},
        "xaxis": {
            "type": "date",
            "fixedrange": True,
            "gridcolor": "var(--grid)",
            "hoverformat": "%d %b %Y",
            "tickformat": _tick_format(points, projection),
            "tickangle": 0,
            "nticks": 6,
            **SPIKE,
            "automargin": True,
        },
        "yaxis": axis("Saved, USD", "$,~s"),
    }
    return {"data": data, "layout": layout}


def _tick_format(points: Sequence[Point], projection: Projection | None) -> str:
    """Labels so short that six stand side by side on a phone."""
    days = ((projection.until if projection else points[-1][0]) - points[0][0]).days
    if days < _FEW_DAYS:
        return "%-d %b"
    return "%b" if days <= _A_YEAR else "%b %y"


def _area(points: Sequence[Point], part: str) -> PlotlyDict:
    amounts: list[Amount] = [getattr(saved, part) for _, saved in points]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": PARTS[part],
        "x": [day.isoformat() for day, _ in points],
        "y": [round(amount.usd, 2) for amount in amounts],
        "customdata": [[usd(amount.usd_low), usd(amount.usd_high)] for amount in amounts],
        "hovertemplate": "%{y:$,.0f} (%{customdata[0]} to %{customdata[1]})",
        "stackgroup": "saved",
        "line": {"width": 0},
        "fillcolor": f"var(--of-{part})",
    }


def _projected(last: Point, projection: Projection) -> PlotlyDict:
    day, saved = last
    now = saved.realised.usd
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "Projected, realised",
        "x": [day.isoformat(), projection.until.isoformat()],
        "y": [round(now, 2), round(now + projection.to_come.usd, 2)],
        "hovertemplate": "%{y:$,.0f}",
        "line": {"color": "var(--text)", "width": 2, "dash": "dot"},
    }


def accrual_description(points: Sequence[Point]) -> str:
    """The chart as text, for screen readers."""
    day, saved = points[-1]
    start, _ = points[0]
    return (
        f"Saved from {start + timedelta(days=1)} to {day}: {usd(saved.verified.usd)} verified, "
        f"{usd(saved.self_reported.usd)} self-reported; {usd(saved.potential.usd)} potential."
    )


@dataclass(frozen=True)
class Part:
    """A part of the bar; ``start`` and ``width`` in percent of it."""

    category: str
    name: str
    amount: Amount
    start: float
    width: float


def accrual_bar(saved: Saved) -> list[Part]:
    """Verified, self-reported and potential as one bar; empty if nothing was saved at all."""
    amounts = {part: getattr(saved, part) for part in PARTS}
    total = sum(amount.usd for amount in amounts.values())
    if total <= 0:
        return []
    parts, start = [], 0.0
    for category, amount in amounts.items():
        width = 100 * amount.usd / total
        parts.append(Part(category, PARTS[category], amount, round(start, 3), round(width, 3)))
        start += width
    return parts


@dataclass(frozen=True)
class Plot:
    """The same chart as shapes, for a page to print.

    Attributes:
        areas: Each part, and the points of its polygon.
        ticks_x, ticks_y: Position of a label, in pixels, and its text.
    """

    areas: list[tuple[str, str]]
    ticks_x: list[tuple[float, str]]
    ticks_y: list[tuple[float, str]]

    width, height, left, right, top, bottom = 640, 210, 64, 630, 14, 184


def accrual_plot(points: Sequence[Point]) -> Plot:
    """The stacked areas as polygons."""
    tops = [0.0 for _ in points]
    most = max((sum(getattr(s, p).usd for p in PARTS) for _, s in points), default=0.0) or 1.0
    start, span = points[0][0], max(1, (points[-1][0] - points[0][0]).days)
    xs = [Plot.left + (Plot.right - Plot.left) * (day - start).days / span for day, _ in points]
    areas = []
    for part in PARTS:
        below, tops = (
            tops,
            [top + getattr(saved, part).usd for top, (_, saved) in zip(tops, points, strict=True)],
        )
        outline = [*zip(xs, tops, strict=True), *reversed([*zip(xs, below, strict=True)])]
        areas.append((part, " ".join(f"{x:.1f},{_down(y, most):.1f}" for x, y in outline)))
    middle = len(points) // 2
    days = (start + timedelta(days=1), points[middle][0], points[-1][0])
    return Plot(
        areas=areas,
        ticks_x=[
            (x, f"{day:%-d %b}") for x, day in zip((xs[0], xs[middle], xs[-1]), days, strict=True)
        ],
        ticks_y=[(_down(value, most), usd(value)) for value in _round_values(most)],
    )


def _round_values(most: float) -> list[float]:
    """From zero, in two to four steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(most))
    step = next(s for s in (power / 5, power / 2, power, 2 * power, 5 * power) if most / s < 5)
    return [step * number for number in range(floor(most / step) + 1)]


def _down(value: float, most: float) -> float:
    return Plot.bottom - (Plot.bottom - Plot.top) * value / most
