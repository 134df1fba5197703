"""The charts of a comparison: curves over batch size, and bars for a slide.

The bars are an SVG of our own, so that they can be downloaded without JavaScript. It has attributes
only, since the content security policy allows no style sheet in it, and it is light in every
theme, as most slides are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from analyses.charts.layout import PlotlyDict, axis, limit_label, limit_line, plain_layout
from analyses.formatting import significant, whole
from analyses.pages.compare.columns import Column, title_of
from engine.gpus import GIB
from engine.result import AnalysisResult, Source, Trial

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_COLOURS = 5
_MANY_TIMES = 6
"""From this ratio between the largest batches on, the batch axis is logarithmic."""


def memory_chart(columns: Sequence[Column]) -> PlotlyDict:
    """Device used vs. batch size; peak allocated for a device without an allocator."""
    shown = _with_result(columns)
    traces = [
        _trace(column, number, [(p.batch_size, y) for p in points if (y := _memory_gib(p))], "GiB")
        for number, column, points in shown
    ]
    of_devices = all(trial.device_used_bytes for _, _, points in shown for trial in points)
    layout = _layout(shown, "Device used, GiB" if of_devices else "Device used or allocated, GiB")
    limits = _limits(shown)
    layout["shapes"] = [limit_line(total) for total in limits]
    layout["annotations"] = [limit_label(total, names) for total, names in limits.items()]
    return {"data": traces, "layout": layout}


def speed_chart(columns: Sequence[Column]) -> PlotlyDict:
    """Samples per second vs. batch size, with a diamond at each recommended batch."""
    shown = _with_result(columns)
    traces = []
    for number, column, points in shown:
        speeds = [(p.batch_size, s) for p in points if p.fits and (s := p.samples_per_second)]
        traces.append(_trace(column, number, speeds, "samples/s"))
        at = column.recommended
        if at and at.samples_per_second:
            marked = _trace(column, number, [(at.batch_size, at.samples_per_second)], "samples/s")
            diamond = {"color": _colour(number), "size": 11, "symbol": "diamond"}
            traces.append(marked | {"mode": "markers", "marker": diamond, "showlegend": False})
    return {
        "data": [trace for trace in traces if trace["x"]],
        "layout": _layout(shown, "Samples/s"),
    }


def _with_result(columns: Sequence[Column]) -> list[tuple[int, Column, list[Trial]]]:
    """The columns with a result: their number, which sets their colour, and their points."""
    return [
        (number, column, _points(column.result))
        for number, column in enumerate(columns)
        if column.result
    ]


def _limits(shown: Sequence[tuple[int, Column, list[Trial]]]) -> dict[int, str]:
    """The GPUs' memory in bytes, with the names of all whose lines would coincide."""
    by_gib: dict[int, dict[str, int]] = {}
    for _, column, _ in shown:
        if column.result:
            gpu = column.result.gpu
            by_gib.setdefault(round(gpu.total_bytes / GIB), {})[gpu.name] = gpu.total_bytes
    return {max(gpus.values()): ", ".join(gpus) for gpus in by_gib.values()}


def _points(result: AnalysisResult) -> list[Trial]:
    """One point per batch size, up to a little beyond the limit; trials take precedence."""
    by_size = {trial.batch_size: trial for trial in [*result.curve, *result.trials]}
    end = max([result.next_batch_size, *(trial.batch_size for trial in result.curve)])
    return [by_size[size] for size in sorted(by_size) if size <= end]


def _memory_gib(trial: Trial) -> float | None:
    used = trial.device_used_bytes or trial.peak_allocated_bytes
    return None if used is None else round(used / GIB, 4)


def _colour(number: int) -> str:
    return f"var(--series-{number % _COLOURS})"


def _trace(
    column: Column, number: int, points: Sequence[tuple[int, float]], unit: str
) -> PlotlyDict:
    decimals = ",.2f" if unit == "GiB" else ",.3~s"
    source = column.result.source if column.result else ""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{column.label} ({source})",
        "legendgroup": str(column.pk),
        "x": [batch for batch, _ in points],
        "y": [y for _, y in points],
        "line": {
            "color": _colour(number),
            "width": 2,
            "dash": _DASHES[number // _COLOURS * 2 % len(_DASHES)],
        },
        "hovertemplate": f"batch %{{x:,}}: %{{y:{decimals}}} {unit}"
        f"<extra>{column.label}, {source}</extra>",
    }


def _layout(shown: Sequence[tuple[int, Column, list[Trial]]], title: str) -> PlotlyDict:
    largest = [column.result.largest_batch_size for _, column, _ in shown if column.result]
    far_apart = bool(largest) and max(largest) >= _MANY_TIMES * max(1, min(largest))
    batch_axis = axis("Batch size", ",d")
    if far_apart:
        batch_axis |= {"type": "log", "dtick": "D2", "title": {"text": "Batch size, log scale"}}
    return plain_layout(height=420) | {
        "showlegend": True,
        "xaxis": batch_axis,
        "yaxis": axis(title, ",~g"),
    }


WIDTH = 1280
_MARGIN = 48
_LABELS = 330
_TOP = 148
_ROW = 46
_BAR = 24
_BOTTOM = 62
_GAP = 40
_VALUE = 150
"""Room to the right of the longest bar for its number, in the SVG's units."""

_LONGEST_LABEL = 34
_FONT = "Inter, Helvetica, Arial, sans-serif"
_TEXT, _MUTED, _EDGE = "#161817", "#5e6562", "#dfe1e0"
_BASE, _OTHER = "#8f9592", "#009a56"


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
        base: The analysis whose bars are grey; the others are green.
    """
    panels = [
        Panel("Samples per second at the recommended batch", [_speed(c) for c in columns]),
        Panel("Largest batch that fits", [_largest(c) for c in columns]),
    ]
    height = _TOP + _ROW * len(columns) + _BOTTOM
    title = title_of(columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family={quoteattr(_FONT)} role="img" '
        f"aria-label={quoteattr(bars_description(columns))}>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_MARGIN, 62, title, size=30, weight=650),
    ]
    for number, column in enumerate(columns):
        label = column.label
        if len(label) > _LONGEST_LABEL:
            label = f"{label[: _LONGEST_LABEL - 1]}…"
        parts.append(_text(_MARGIN, _middle(number) + 6, label, size=17))
    width = (WIDTH - 2 * _MARGIN - _LABELS - _GAP) // 2
    for place, panel in enumerate(panels):
        left = _MARGIN + _LABELS + place * (width + _GAP)
        is_base = [column.pk == base for column in columns]
        parts += _panel(panel, left, width, is_base)
    parts.append(_text(_MARGIN, height - 26, _footer(panels), size=14, fill=_MUTED))
    return "\n".join([*parts, "</svg>"])


def bars_description(columns: Sequence[Column]) -> str:
    """The picture as text."""
    parts = []
    for column in columns:
        speed, largest = _speed(column), _largest(column)
        parts.append(
            f"{column.label}: {speed.text} samples per second, largest batch {largest.text}"
        )
    return f"{title_of(columns)}. {'; '.join(parts)}."


def _panel(panel: Panel, left: int, width: int, is_base: Sequence[bool]) -> list[str]:
    longest = max((bar.value or 0 for bar in panel.bars), default=0)
    parts = [
        _text(left, _TOP - 28, panel.title, size=16, weight=600),
        f'<line x1="{left}" y1="{_TOP - 10}" x2="{left}" '
        f'y2="{_TOP + _ROW * len(panel.bars) - 6}" stroke="{_EDGE}" stroke-width="1"/>',
    ]
    for number, bar in enumerate(panel.bars):
        length = (width - _VALUE) * (bar.value or 0) / longest if longest else 0
        colour = _BASE if is_base[number] else _OTHER
        middle = _middle(number)
        parts.append(
            f'<rect x="{left}" y="{middle - _BAR // 2}" width="{length:.1f}" height="{_BAR}" '
            f'fill="{colour}"/>'
        )
        parts.append(_figure(round(left + length + 10), middle + 6, bar))
    return parts


def _middle(number: int) -> int:
    return _TOP + _ROW * number + _ROW // 2 - 8


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


def _unknown(column: Column) -> Bar:
    return Bar(None, "no answer" if column.result is None else "not known", None)


def _speed(column: Column) -> Bar:
    trial = column.recommended
    if trial is None or trial.samples_per_second is None:
        return _unknown(column)
    return Bar(trial.samples_per_second, significant(trial.samples_per_second), trial.source)


def _largest(column: Column) -> Bar:
    result = column.result
    if result is None:
        return _unknown(column)
    return Bar(result.largest_batch_size, whole(result.largest_batch_size), result.source)


def _footer(panels: Sequence[Panel]) -> str:
    meanings = {
        Source.PREDICTED: "predicted: computed from a trace of the training step, nothing was run",
        Source.COMPUTED: "computed: in part by formulas beside a trace, nothing was run",
        Source.MEASURED: "measured: real training steps on the GPU",
    }
    used = {bar.source for panel in panels for bar in panel.bars}
    used_meanings = [meaning for source, meaning in meanings.items() if source in used]
    return " · ".join(["MemoryMark", "grey: the baseline", *used_meanings])
