"""Memory by category: the bars of the current and the recommended batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from engine.answer.amounts import trial_at
from engine.answer.figures import CURRENT_BATCH, RECOMMENDED_BATCH
from engine.core.numbers import share
from engine.core.sizes import gib
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source, Trial

CATEGORIES = {
    "parameters": ("Parameters", "the model's weights"),
    "gradients": ("Gradients", "gradients that exist at the peak"),
    "optimizer_state": ("Optimizer state", "kept by the optimizer between steps"),
    "casts": ("Weight casts", "copies of the weights in the compute precision"),
    "activations": ("Activations", "kept by the forward pass for the backward pass"),
    "temporaries": ("Temporaries", "short-lived tensors"),
    "inputs": ("Inputs", "the batch and its labels"),
    "workspaces": ("Workspaces", "scratch memory of cuBLAS and cuDNN"),
    "outputs": ("Kept outputs", "logits that evaluation keeps for its metrics"),
    "cache": ("Key-value cache", "keys and values of texts being generated"),
    "tensors": ("Tensors", "all allocated memory, without a finer breakdown"),
    "cached": (
        "Cached, unused",
        "cached by PyTorch's allocator (reserved \N{MINUS SIGN} allocated)",
    ),
    "context": (
        "CUDA context",
        "driver and libraries (device used \N{MINUS SIGN} reserved)",
    ),
    "free": ("Free", "headroom"),
}
"""Category to its name and meaning, in the order in which a bar stacks them."""

_WITH_VLLM = "driver, libraries and vLLM beside them (device used \N{MINUS SIGN} reserved)"

MAX_BAR_LENGTH = 1.6
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
        limit: The end of the GPU's memory, in percent of the full width: 100, or less if a bar
            needs more memory than there is.
        is_cut: Whether the bar is too long to be shown in full.
        trial: The trial of this batch size.
    """

    role: str
    title: str
    batch_size: int
    source: Source
    used_bytes: int | None
    summary: str
    segments: list[Segment]
    sizes: dict[str, int]
    limit: float
    is_cut: bool
    trial: Trial


@dataclass(frozen=True)
class BreakdownRow:
    """One category across the bars: in each its size (``None`` if it has none) and its role."""

    category: str
    name: str
    meaning: str
    cells: list[tuple[int | None, str]]


def memory_bars(result: AnalysisResult) -> list[MemoryBar]:
    """The bars of the current and the recommended batch; one bar if there is only one batch."""
    size = result.current_batch_size
    today = result.today or (None if size is None else trial_at(result, size))
    then = trial_at(result, result.recommended_batch_size)
    before = "Without the changes" if size is None else CURRENT_BATCH.label
    tried = [("current", before, today), ("recommended", RECOMMENDED_BATCH.label, then)]
    if today == then:
        tried = [("recommended", "Current and recommended batch", today)]
    known = [(role, title, trial) for role, title, trial in tried if trial]
    total = result.gpu.total_bytes
    longest = max([total, *(used_bytes(trial) or 0 for _, _, trial in known)])
    scale = min(longest, round(MAX_BAR_LENGTH * total))
    return [_bar(role, title, trial, total, scale) for role, title, trial in known]


def memory_bar(role: str, title: str, trial: Trial, total_bytes: int) -> MemoryBar:
    """The bar of a single batch size."""
    longest = max(total_bytes, used_bytes(trial) or 0)
    return _bar(role, title, trial, total_bytes, min(longest, round(MAX_BAR_LENGTH * total_bytes)))


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


def breakdown_rows(bars: list[MemoryBar], *, beside_vllm: bool = False) -> list[BreakdownRow]:
    """The table under the bars: a row for each category that any bar has.

    Args:
        bars: The bars.
        beside_vllm: Whether vLLM generates on the same GPU, outside PyTorch's allocator.
    """
    meanings = {"context": _WITH_VLLM} if beside_vllm else {}
    return [
        BreakdownRow(
            category,
            name,
            meanings.get(category, meaning),
            [(bar.sizes.get(category), bar.role) for bar in bars],
        )
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
        source=trial.source,
        used_bytes=used_bytes(trial),
        summary=_summary(trial, total),
        segments=_segments(filled, scale),
        sizes=sizes,
        limit=_share(total, scale),
        is_cut=sum(filled.values()) > scale,
        trial=trial,
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
    used, whole = used_bytes(trial), gib(total)
    if used is None:
        return f"does not fit in {whole}; its size is unknown"
    if trial.fits:
        return f"{gib(used)} of {whole} ({share(used / total)})"
    return f"needs {gib(used)} of {whole}; does not fit"
