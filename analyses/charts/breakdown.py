"""Memory by category: the bars of the current and the recommended batch, and the stacked chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from analyses.charts.layout import PlotlyDict, axis, limit_label, limit_line, plain_layout
from analyses.formatting import gib_with_unit, percent, whole
from analyses.stored_result import trial_at
from engine.gpus import GIB
from engine.result import AnalysisResult, Source, Trial

CATEGORIES = {
    "parameters": ("Parameters", "the model's weights"),
    "gradients": ("Gradients", "gradients that exist at the peak"),
    "optimizer_state": ("Optimizer state", "kept by the optimizer between steps"),
    "casts": ("Weight casts", "copies of the weights in the compute precision"),
    "activations": ("Activations", "kept by the forward pass for the backward pass"),
    "temporaries": ("Temporaries", "short-lived tensors"),
    "inputs": ("Inputs", "the batch and its labels"),
    "workspaces": ("Workspaces", "scratch memory of cuBLAS and cuDNN"),
    "tensors": ("Tensors", "all allocated memory, without a finer breakdown"),
    "cached": (
        "Cached, unused",
        "cached by PyTorch's allocator (reserved \N{MINUS SIGN} allocated)",
    ),
    "context": ("CUDA context", "driver and libraries (device used \N{MINUS SIGN} reserved)"),
    "free": ("Free", "headroom"),
}
"""Category to its name and meaning, in the order in which a bar stacks them."""

LONGEST_BAR = 1.6
"""A bar longer than this multiple of the GPU's memory is cut."""


@dataclass(frozen=True)
class Segment:
    """One piece of a bar; ``start`` and ``width`` are percentages of its full width."""

    category: str
    size_bytes: int
    start: float
    width: float


@dataclass(frozen=True)
class MemoryBar:
    """The memory of one batch size, on the scale of the GPU's.

    Attributes:
        role: ``current`` or ``recommended``, for the colour.
        segments: Without the free part; empty if the memory of this batch size is not known.
        sizes: Bytes by category, with the free part.
        limit: Where the GPU's memory ends, in percent of the full width: 100, or less if a bar
            needs more memory than there is.
        is_cut: Whether the bar is too long to be shown in full.
    """

    role: str
    title: str
    batch_size: int
    fits: bool
    source: Source
    used_bytes: int | None
    summary: str
    segments: list[Segment]
    sizes: dict[str, int]
    limit: float
    is_cut: bool


@dataclass(frozen=True)
class BreakdownRow:
    """One category across the bars: in each its size (``None`` if it has none) and its role."""

    category: str
    name: str
    meaning: str
    cells: list[tuple[int | None, str]]


def memory_bars(result: AnalysisResult) -> list[MemoryBar]:
    """The bars of the current and the recommended batch; one bar if they are the same."""
    wanted = [
        ("current", "Current batch", result.current_batch_size),
        ("recommended", "Recommended batch", result.recommended_batch_size),
    ]
    if result.current_batch_size == result.recommended_batch_size:
        wanted = [("recommended", "Current and recommended batch", result.current_batch_size)]
    tried = [(role, title, trial_at(result, size)) for role, title, size in wanted]
    known = [(role, title, trial) for role, title, trial in tried if trial]
    total = result.gpu.total_bytes
    longest = max([total, *(used_bytes(trial) or 0 for _, _, trial in known)])
    scale = min(longest, round(LONGEST_BAR * total))
    return [_bar(role, title, trial, total, scale) for role, title, trial in known]


def memory_bar(role: str, title: str, trial: Trial, total_bytes: int) -> MemoryBar:
    """The bar of a single batch size."""
    longest = max(total_bytes, used_bytes(trial) or 0)
    return _bar(role, title, trial, total_bytes, min(longest, round(LONGEST_BAR * total_bytes)))


def used_bytes(trial: Trial) -> int | None:
    """Device used, else peak reserved, else peak allocated, whichever is known."""
    figures = (trial.device_used_bytes, trial.peak_reserved_bytes, trial.peak_allocated_bytes)
    return next((figure for figure in figures if figure is not None), None)


def memory_sizes(trial: Trial, total_bytes: int) -> dict[str, int]:
    """Bytes by category, in stacking order; empty if no memory is known."""
    used = used_bytes(trial)
    if used is None:
        return {}
    allocated, reserved = trial.peak_allocated_bytes, trial.peak_reserved_bytes
    sizes = dict(trial.breakdown)
    if allocated is not None:
        # Whatever a breakdown leaves out still has to show up somewhere.
        sizes["tensors"] = allocated - sum(sizes.values())
        if reserved is not None:
            sizes["cached"] = reserved - allocated
    if reserved is not None:
        sizes["context"] = used - reserved
    sizes["free"] = total_bytes - used
    return {name: sizes[name] for name in CATEGORIES if sizes.get(name, 0) > 0}


def breakdown_rows(bars: list[MemoryBar]) -> list[BreakdownRow]:
    """The table under the bars: a row for each category that any bar has."""
    return [
        BreakdownRow(category, name, meaning, [(bar.sizes.get(category), bar.role) for bar in bars])
        for category, (name, meaning) in CATEGORIES.items()
        if any(category in bar.sizes for bar in bars)
    ]


def category_name(category: str) -> str:
    """The name of a category; one that is not known here stays as it is."""
    return CATEGORIES[category][0] if category in CATEGORIES else category


def _bar(role: str, title: str, trial: Trial, total: int, scale: int) -> MemoryBar:
    sizes = memory_sizes(trial, total)
    filled = {name: size for name, size in sizes.items() if name != "free"}
    return MemoryBar(
        role=role,
        title=title,
        batch_size=trial.batch_size,
        fits=trial.fits,
        source=trial.source,
        used_bytes=used_bytes(trial),
        summary=_summary(trial, total),
        segments=_segments(filled, scale),
        sizes=sizes,
        limit=_share(total, scale),
        is_cut=sum(filled.values()) > scale,
    )


def _segments(sizes: dict[str, int], scale: int) -> list[Segment]:
    """The categories side by side; what lies beyond the scale is cut off."""
    ends = accumulate(sizes.values())
    return [
        Segment(name, size, _share(end - size, scale), _share(min(end, scale) - end + size, scale))
        for (name, size), end in zip(sizes.items(), ends, strict=True)
        if end - size < scale
    ]


def _share(part: int, scale: int) -> float:
    """A part of the scale in percent, rounded finer than any screen can show."""
    return round(100 * part / scale, 3)


def _summary(trial: Trial, total: int) -> str:
    used, whole = used_bytes(trial), gib_with_unit(total)
    if used is None:
        return f"does not fit in {whole}; its size is unknown"
    if trial.fits:
        return f"{gib_with_unit(used)} of {whole} ({percent(used, total)})"
    return f"needs {gib_with_unit(used)} of {whole}; does not fit"


_FROM_THE_BOTTOM = (
    "context", "optimizer_state", "parameters", "gradients", "casts", "workspaces", "inputs",
    "activations", "temporaries", "tensors", "cached",
)  # fmt: skip
"""Categories that the batch size changes least are at the bottom, so that growth can be read."""

_UPPER, _LOWER = 0.7, 0.6
"""The heights of the two batches' names, as a share of the plot, so that they never overlap."""


@dataclass(frozen=True)
class _Mark:
    """A vertical line at one batch size, with its name."""

    batch_size: int
    name: str
    colour: str
    height: float

    def line(self) -> PlotlyDict:
        return {
            "type": "line",
            "x0": self.batch_size,
            "x1": self.batch_size,
            "yref": "paper",
            "y0": 0,
            "y1": self.height,
            "line": {"color": f"var(--{self.colour})", "width": 1.5, "dash": "dot"},
        }

    def label(self, end: int) -> PlotlyDict:
        """The name, on the side that has room; ``end`` is the axis's largest batch."""
        return {
            "text": f"{self.name} {whole(self.batch_size)}",
            "x": self.batch_size,
            "xanchor": "left" if self.batch_size <= end / 2 else "right",
            "yref": "paper",
            "y": self.height,
            "showarrow": False,
            "bgcolor": "var(--card)",
            "font": {"color": f"var(--{self.colour}-text)", "size": 11},
        }


def breakdown_points(result: AnalysisResult) -> list[Trial]:
    """The batch sizes whose memory is known by category, all of the curve's source.

    A measured point among predicted ones would look like a notch in every area.
    """
    source = breakdown_source(result)
    known = [trial for trial in (*result.trials, *result.curve) if trial.breakdown]
    by_size = {trial.batch_size: trial for trial in known if trial.source is source}
    beyond = max((point.batch_size for point in result.curve), default=result.next_batch_size)
    return [by_size[size] for size in sorted(by_size) if size <= beyond]


def breakdown_source(result: AnalysisResult) -> Source:
    """The source of the chart's numbers."""
    return next((point.source for point in result.curve if point.breakdown), result.source)


def breakdown_chart(result: AnalysisResult) -> PlotlyDict | None:
    """Memory by category, stacked, up to the GPU's memory; ``None`` with fewer than two points."""
    points = breakdown_points(result)
    if len(points) < 2:
        return None
    sizes = [memory_sizes(point, result.gpu.total_bytes) for point in points]
    used = {name for each in sizes for name in each}
    batches = [point.batch_size for point in points]
    areas = [
        _area(name, batches, [each.get(name, 0) for each in sizes])
        for name in _FROM_THE_BOTTOM
        if name in used
    ]
    total = _line("Total", batches, [used_bytes(point) or 0 for point in points]) | {
        "line": {"color": "var(--text)", "width": 1},
        "showlegend": False,
    }
    return {"data": [*areas, total], "layout": _layout(result, batches)}


def breakdown_description(result: AnalysisResult) -> str:
    """The chart as text, for screen readers; empty without a chart."""
    points = breakdown_points(result)
    if len(points) < 2:
        return ""
    first, last = points[0], points[-1]
    grown = {
        name: size - first.breakdown.get(name, 0)
        for name, size in last.breakdown.items()
        if name in CATEGORIES
    }
    most = max(grown, key=lambda name: grown[name], default="")
    growth = f" Most of the growth is {category_name(most).lower()}." if most else ""
    return (
        f"Memory by category from batch {whole(first.batch_size)} to {whole(last.batch_size)}, "
        f"on a GPU with {gib_with_unit(result.gpu.total_bytes)}.{growth}"
    )


def _area(category: str, batches: Sequence[int], sizes: Sequence[int]) -> PlotlyDict:
    return _line(category_name(category), batches, sizes) | {
        "stackgroup": "memory",
        "line": {"width": 0},
        "fillcolor": f"var(--of-{category})",
    }


def _line(name: str, batches: Sequence[int], sizes: Sequence[int]) -> PlotlyDict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(batches),
        "y": [round(size / GIB, 4) for size in sizes],
        "hovertemplate": "%{y:,.2f} GiB",
    }


def _layout(result: AnalysisResult, batches: Sequence[int]) -> PlotlyDict:
    total = result.gpu.total_bytes
    layout = plain_layout(height=400)
    marks = [_Mark(result.recommended_batch_size, "recommended", "good", _UPPER)]
    if result.current_batch_size != result.recommended_batch_size:
        marks.append(_Mark(result.current_batch_size, "current", "bad", _LOWER))
    shown = [mark for mark in marks if mark.batch_size <= batches[-1]]
    return layout | {
        "hovermode": "x unified",
        "legend": layout["legend"] | {"traceorder": "normal"},
        "xaxis": axis("Batch size", ",d") | {"range": [0, batches[-1]], "hoverformat": ",d"},
        "yaxis": axis("Memory, GiB", ",~g"),
        "shapes": [limit_line(total), *(mark.line() for mark in shown)],
        "annotations": [
            limit_label(total, f"GPU memory {gib_with_unit(total)}"),
            *(mark.label(batches[-1]) for mark in shown),
        ],
    }
