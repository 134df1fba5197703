"""Draws measured against predicted speedups: a figure of docs/methods.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.step_time.report import Sweep

FILE = Path(__file__).parents[2] / "docs" / "speedups-h100.svg"

_SIDE, _MARGIN = 460, 52
_LEAST, _MOST = 0.8, 32.0
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
        (_LEAST, _LEAST * _NEAR), (_MOST / _NEAR, _MOST), (_MOST, _MOST),
        (_MOST, _MOST / _NEAR), (_LEAST * _NEAR, _LEAST), (_LEAST, _LEAST),
    ]  # fmt: skip
    band = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in corners)
    yield f'<polygon points="{band}" fill="#2b6cb0" opacity="0.12"/>\n'
    yield _line(_LEAST, _LEAST, _MOST, _MOST, "#2b6cb0")
    for tick in _TICKS:
        yield _line(tick, _LEAST, tick, _MOST, "#e5e5e5") + _line(
            _LEAST, tick, _MOST, tick, "#e5e5e5"
        )
        yield _text(_x(tick), _y(_LEAST) + 18, f"{tick}\N{MULTIPLICATION SIGN}", "middle")
        yield _text(_x(_LEAST) - 8, _y(tick) + 4, f"{tick}\N{MULTIPLICATION SIGN}", "end")
    yield _text(_x(5), _y(_LEAST) + 40, "measured speedup", "middle")
    yield _text(_x(_LEAST) + 6, _y(_MOST) - 8, "predicted speedup", "start")
    for sweep in sweeps:
        x, y = _x(sweep.measured), _y(sweep.predicted)
        name = f"{sweep.trace}, batch {sweep.small} to {sweep.large}"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#c05621" opacity="0.75">'
        yield f"<title>{name}</title></circle>\n"


def _x(speedup: float) -> float:
    return _MARGIN + _SIDE * math.log(speedup / _LEAST) / math.log(_MOST / _LEAST)


def _y(speedup: float) -> float:
    return 2 * _MARGIN + _SIDE - _x(speedup)


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    ends = f'x1="{_x(x):.1f}" y1="{_y(y):.1f}" x2="{_x(to_x):.1f}" y2="{_y(to_y):.1f}"'
    return f'<line {ends} stroke="{colour}"/>\n'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>\n'
