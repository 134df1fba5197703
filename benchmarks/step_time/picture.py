"""Draws measured against predicted speedups: a figure of docs/methods.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.step_time.report import Sweep

FILE = Path(__file__).parents[2] / "docs" / "speedups-h100.svg"

_SIDE, _MARGIN = 460, 52
_MIN, _MAX = 0.8, 32.0
_TICKS = (1, 2, 4, 8, 16, 32)
_NEAR = 1.25
_GRID = "#e5e5e5"

_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {width}" width="{width}" \
font-family="sans-serif" font-size="12" fill="#555">
<title>Speedups between two batches on our H100: measured against predicted</title>
<rect width="100%" height="100%" fill="white"/>
"""


def as_svg(sweeps: Sequence[Sweep]) -> str:
    """A square with both axes logarithmic; the band is 25% to both sides of being equal."""
    head = _HEAD.format(width=_SIDE + 2 * _MARGIN)
    return head + "".join(_parts(sweeps)) + "</svg>\n"


def _parts(sweeps: Iterable[Sweep]) -> Iterator[str]:
    corners = [
        (_MIN, _MIN * _NEAR), (_MAX / _NEAR, _MAX), (_MAX, _MAX),
        (_MAX, _MAX / _NEAR), (_MIN * _NEAR, _MIN), (_MIN, _MIN),
    ]  # fmt: skip
    band = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in corners)
    yield f'<polygon points="{band}" fill="#2b6cb0" opacity="0.12"/>\n'
    yield _line(_MIN, _MIN, _MAX, _MAX, "#2b6cb0")
    for tick in _TICKS:
        yield _line(tick, _MIN, tick, _MAX, "#e5e5e5") + _line(_MIN, tick, _MAX, tick, "#e5e5e5")
        yield _text(_x(tick), _y(_MIN) + 18, f"{tick}\N{MULTIPLICATION SIGN}", "middle")
        yield _text(_x(_MIN) - 8, _y(tick) + 4, f"{tick}\N{MULTIPLICATION SIGN}", "end")
    yield _text(_x(5), _y(_MIN) + 40, "measured speedup", "middle")
    yield _text(_x(_MIN) + 6, _y(_MAX) - 8, "predicted speedup", "start")
    for sweep in sweeps:
        x, y = _x(sweep.measured), _y(sweep.predicted)
        name = f"{sweep.trace}, batch {sweep.small} to {sweep.large}"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#c05621" opacity="0.75">'
        yield f"<title>{name}</title></circle>\n"


def _x(speedup: float) -> float:
    return _MARGIN + _SIDE * math.log(speedup / _MIN) / math.log(_MAX / _MIN)


def _y(speedup: float) -> float:
    return 2 * _MARGIN + _SIDE - _x(speedup)


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    ends = f'x1="{_x(x):.1f}" y1="{_y(y):.1f}" x2="{_x(to_x):.1f}" y2="{_y(to_y):.1f}"'
    return f'<line {ends} stroke="{colour}"/>\n'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>\n'
