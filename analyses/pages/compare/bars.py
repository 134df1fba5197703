"""Bars of a comparison as a picture for a slide.

It is an SVG of our own, so that it can be downloaded without JavaScript. It has attributes only,
since the content security policy allows no style sheet in it, and it is light in every theme, as
most slides are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from analyses.pages.compare.colours import light
from analyses.pages.compare.columns import Column, title_of
from engine.answer.figures import LARGEST_BATCH, SPEED, Figure
from engine.interface.trial import Source

WIDTH = 1280
_MARGIN = 48
_LABELS = 330
_TOP = 148
_ROW, _LINE, _PADDING = 46, 19, 14
_BAR = 24
_BOTTOM = 62
_GAP = 40
_VALUE = 150
"""Room to the right of the longest bar for its number, in the SVG's units."""

_MAX_LINE_LENGTH = 36
_FONT = "Inter, Helvetica, Arial, sans-serif"
_TEXT, _MUTED, _EDGE = "#161817", "#5e6562", "#dfe1e0"


@dataclass(frozen=True)
class Bar:
    """One bar; ``value`` is ``None`` where it is not known."""

    value: float | None
    text: str
    source: Source | None


@dataclass(frozen=True)
class Panel:
    """One of the two charts."""

    title: str
    bars: list[Bar]


def bars_svg(columns: Sequence[Column], base: int | None) -> str:
    """The picture.

    Args:
        columns: One bar per column in each panel, from top to bottom.
        base: The analysis that is marked as the baseline.
    """
    panels = [
        Panel(figure.full_label, [_bar(figure, column) for column in columns])
        for figure in (SPEED, LARGEST_BATCH)
    ]
    labels = [_label_lines(column, base) for column in columns]
    row = max(_ROW, _PADDING + _LINE * max(map(len, labels)))
    height = _TOP + row * len(columns) + _BOTTOM
    title = title_of(columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family={quoteattr(_FONT)} role="img" '
        f"aria-label={quoteattr(bars_description(columns))}>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_MARGIN, 62, title, size=30, weight=650),
    ]
    for number, lines in enumerate(labels):
        first = _middle(number, row) + 6 - round(_LINE * (len(lines) - 1) / 2)
        parts += [
            _text(_MARGIN, first + _LINE * line, text, size=15 if len(lines) > 1 else 17)
            for line, text in enumerate(lines)
        ]
    colours = [light(column.place) for column in columns]
    width = (WIDTH - 2 * _MARGIN - _LABELS - _GAP) // 2
    for place, panel in enumerate(panels):
        left = _MARGIN + _LABELS + place * (width + _GAP)
        parts += _panel(panel, colours, left, width, row)
    parts.append(_text(_MARGIN, height - 26, _footer(panels), size=14, fill=_MUTED))
    return "\n".join([*parts, "</svg>"])


def bars_description(columns: Sequence[Column]) -> str:
    """The picture as text."""
    parts = []
    for column in columns:
        speed, largest = _bar(SPEED, column), _bar(LARGEST_BATCH, column)
        parts.append(
            f"{column.label}: {speed.text} samples per second, largest batch {largest.text}"
        )
    return f"{title_of(columns)}. {'; '.join(parts)}."


def _label_lines(column: Column, base: int | None) -> list[str]:
    """The whole label in lines that fit beside the bars, parted between its words."""
    lines = [""]
    words = column.label.split(" ")
    for word in [*words, "(baseline)"] if column.pk == base else words:
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) <= _MAX_LINE_LENGTH or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _panel(panel: Panel, colours: Sequence[str], left: int, width: int, row: int) -> list[str]:
    longest = max((bar.value or 0 for bar in panel.bars), default=0)
    parts = [
        _text(left, _TOP - 28, panel.title, size=16, weight=600),
        f'<line x1="{left}" y1="{_TOP - 10}" x2="{left}" '
        f'y2="{_TOP + row * len(panel.bars) - 6}" stroke="{_EDGE}" stroke-width="1"/>',
    ]
    for number, bar in enumerate(panel.bars):
        length = (width - _VALUE) * (bar.value or 0) / longest if longest else 0
        middle = _middle(number, row)
        parts.append(
            f'<rect x="{left}" y="{middle - _BAR // 2}" width="{length:.1f}" height="{_BAR}" '
            f'fill="{colours[number]}"/>'
        )
        parts.append(_figure(round(left + length + 10), middle + 6, bar))
    return parts


def _middle(number: int, row: int) -> int:
    return _TOP + row * number + row // 2 - 8


def _figure(x: int, y: int, bar: Bar) -> str:
    """The number at the end of a bar, with its source."""
    source = f'<tspan dx="8" font-size="13" font-weight="400" fill="{_MUTED}">{bar.source}</tspan>'
    return (
        f'<text x="{x}" y="{y}" font-size="17" font-weight="600" fill="{_TEXT}">'
        f"{escape(bar.text)}{source if bar.source else ''}</text>"
    )


def _text(x: int, y: int, text: str, *, size: int, weight: int = 400, fill: str = _TEXT) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{fill}">'
        f"{escape(text)}</text>"
    )


def _bar(figure: Figure, column: Column) -> Bar:
    found = figure.of(column.answered)
    if found is None:
        return Bar(None, "no answer" if column.result is None else "not known", None)
    return Bar(found.value, figure.shown(found), found.sources[0])


def _footer(panels: Sequence[Panel]) -> str:
    meanings = {
        Source.PREDICTED: "predicted: computed from a trace of the training step, nothing was run",
        Source.COMPUTED: "computed: in part by formulas beside a trace, nothing was run",
        Source.MEASURED: "measured: real training steps on the GPU",
    }
    used = {bar.source for panel in panels for bar in panel.bars}
    used_meanings = [meaning for source, meaning in meanings.items() if source in used]
    return " · ".join(["MemoryMark", *used_meanings])
