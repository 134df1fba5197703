"""The chart of what has been saved over time, and the bar of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import floor, log10

from analyses.charts.layout import SPIKE, PlotlyDict, axis, plain_layout
from analyses.formatting import in_thousands
from analyses.savings.accrual import Amount, Point, Projection, Saved
from engine.core.numbers import usd

SAVED = ("verified", "self_reported")
"""The parts of what is saved, from bottom to top; what is potential never stands on them."""

POTENTIAL = "potential"
PARTS = {"verified": "Verified", "self_reported": "Self-reported", POTENTIAL: "Potential"}
"""All parts and their names."""


_MAX_DAYS_BY_DAY, _A_YEAR = 100, 366
_SHORTENED_USD = 1000.0


def accrual_chart(points: Sequence[Point], projection: Projection | None = None) -> PlotlyDict:
    """Saved so far, stacked: verified and self-reported; what is potential is a line of its own."""
    data = [*(_area(points, part) for part in SAVED), _potential(points)]
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
        "yaxis": axis("Saved, USD", _usd_format(points, projection)),
    }
    return {"data": data, "layout": layout}


def _usd_format(points: Sequence[Point], projection: Projection | None) -> str:
    """Labels with k and M for large sums; of small ones they would be m, for thousandths."""
    amounts = [max(saved.realised.usd, saved.potential.usd) for _, saved in points]
    most = max([*amounts, projection.realised.usd if projection else 0.0])
    return "$,~s" if most >= _SHORTENED_USD else "$,~g"


def _tick_format(points: Sequence[Point], projection: Projection | None) -> str:
    """Labels so short that six stand side by side on a phone."""
    days = ((projection.until if projection else points[-1][0]) - points[0][0]).days
    if days < _MAX_DAYS_BY_DAY:
        return "%-d %b"
    return "%b" if days <= _A_YEAR else "%b %y"


def _area(points: Sequence[Point], part: str) -> PlotlyDict:
    area = {"stackgroup": "saved", "line": {"width": 0}, "fillcolor": f"var(--of-{part})"}
    return _trace(points, part) | area


def _potential(points: Sequence[Point]) -> PlotlyDict:
    line = {"color": "var(--of-potential)", "width": 2, "dash": "dash"}
    return _trace(points, POTENTIAL) | {"name": "Potential, not saved", "line": line}


def _trace(points: Sequence[Point], part: str) -> PlotlyDict:
    amounts: list[Amount] = [getattr(saved, part) for _, saved in points]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": PARTS[part],
        "x": [day.isoformat() for day, _ in points],
        "y": [round(amount.usd, 2) for amount in amounts],
        "customdata": [[usd(amount.usd_low), usd(amount.usd_high)] for amount in amounts],
        "hovertemplate": "%{y:$,.0f} (%{customdata[0]} to %{customdata[1]})",
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


_GAP = 2.0
"""Percent of the bar between what is saved and what is potential."""


@dataclass(frozen=True)
class Part:
    """A part of the bar; ``start`` and ``width`` in percent, and the list of what is behind it."""

    category: str
    name: str
    amount: Amount
    start: float
    width: float
    link: str


def accrual_bar(saved: Saved, links: Mapping[str, str]) -> list[Part]:
    """Saved money as one bar and, apart from it on the same scale, potential savings.

    Empty if neither is anything.
    """
    amounts = {part: getattr(saved, part) for part in PARTS}
    total = sum(amount.usd for amount in amounts.values())
    if total <= 0:
        return []
    is_parted = saved.realised.usd > 0 and saved.potential.usd > 0
    gap = _GAP if is_parted else 0.0
    parts, start = [], 0.0
    for category, amount in amounts.items():
        start += gap if category == POTENTIAL else 0.0
        width = (100 - gap) * amount.usd / total
        name, link = PARTS[category], links[category]
        parts.append(Part(category, name, amount, round(start, 3), round(width, 3), link))
        start += width
    return parts


@dataclass(frozen=True)
class Plot:
    """The same chart as shapes, for a page to print.

    Attributes:
        areas: Each part of what is saved, and the points of its polygon.
        potential: The points of the line of what is potential.
        ticks_x, ticks_y: Position of a label, in pixels, and its text.
    """

    areas: list[tuple[str, str]]
    potential: str
    ticks_x: list[tuple[float, str]]
    ticks_y: list[tuple[float, str]]

    width, height, left, right, top, bottom = 640, 210, 64, 630, 14, 184


def accrual_plot(points: Sequence[Point]) -> Plot:
    """Saved money as stacked areas, and potential savings as a line."""
    tops = [0.0 for _ in points]
    most = max((max(s.realised.usd, s.potential.usd) for _, s in points), default=0.0) or 1.0
    start, span = points[0][0], max(1, (points[-1][0] - points[0][0]).days)
    xs = [Plot.left + (Plot.right - Plot.left) * (day - start).days / span for day, _ in points]
    areas = []
    for part in SAVED:
        below, tops = (
            tops,
            [top + getattr(saved, part).usd for top, (_, saved) in zip(tops, points, strict=True)],
        )
        outline = [*zip(xs, tops, strict=True), *reversed([*zip(xs, below, strict=True)])]
        areas.append((part, " ".join(f"{x:.1f},{_down(y, most):.1f}" for x, y in outline)))
    middle = len(points) // 2
    days = (start + timedelta(days=1), points[middle][0], points[-1][0])
    line = [
        f"{x:.1f},{_down(s.potential.usd, most):.1f}" for x, (_, s) in zip(xs, points, strict=True)
    ]
    return Plot(
        areas=areas,
        potential=" ".join(line),
        ticks_x=[
            (x, f"{day:%-d %b}") for x, day in zip((xs[0], xs[middle], xs[-1]), days, strict=True)
        ],
        ticks_y=[(_down(value, most), f"${in_thousands(value)}") for value in _round_values(most)],
    )


def _round_values(most: float) -> list[float]:
    """Values of an axis from zero, in two to four steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(most))
    step = next(s for s in (power / 5, power / 2, power, 2 * power, 5 * power) if most / s < 5)
    return [step * number for number in range(floor(most / step) + 1)]


def _down(value: float, most: float) -> float:
    return Plot.bottom - (Plot.bottom - Plot.top) * value / most
