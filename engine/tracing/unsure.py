"""Sizes in a trace that only a GPU shows, and how far off the peak may be because of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from . import decompositions, flex_attention, recurrent_layers
from .trace import Category, Trace


@dataclass(frozen=True)
class Unsure:
    """Tensors whose size is computed or assumed.

    Attributes:
        makers: The operators that make them.
        factors: Bounds of their size, as multiples: the least and the most.
        caveat: Caveat of an answer about them.
        category: Category of the tensors; ``None`` for all that these operators make.
    """

    makers: frozenset[str]
    factors: tuple[float, float]
    caveat: str
    category: Category | None = None

    def tensors(self, trace: Trace) -> Iterator[int]:
        """Ids of these tensors in a trace."""
        for tensor, maker in enumerate(trace.makers):
            if maker in self.makers and self.category in (None, trace.categories[tensor]):
                yield tensor


_KINDS = (
    Unsure(
        decompositions.MAKERS, decompositions.FACTORS, decompositions.ASSUMED, Category.WORKSPACES
    ),
    Unsure(recurrent_layers.MAKERS, recurrent_layers.FACTORS, recurrent_layers.COMPUTED),
    Unsure(flex_attention.MAKERS, flex_attention.FACTORS, flex_attention.COMPUTED),
)


def peak_interval(trace: Trace) -> tuple[int, int]:
    """Bytes by which the peak of a trace may be lower and higher than it is.

    Both are 0 where nothing unsure is at the peak or may come to be.
    """
    lower, higher = 0, 0
    for kind in _KINDS:
        less, more = _interval(trace, kind)
        lower, higher = lower + less, higher + more
    return lower, higher


def unsure_caveats(trace: Trace) -> list[str]:
    """Caveats of an answer where the peak may be higher."""
    return [kind.caveat for kind in _KINDS if _interval(trace, kind)[1]]


def _interval(trace: Trace, kind: Unsure) -> tuple[int, int]:
    tensors = list(kind.tensors(trace))
    if not tensors:
        return 0, 0
    peak = trace.peak_by_category()[0]
    low, high = (_scaled(trace, tensors, by).peak_by_category()[0] for by in kind.factors)
    return peak - low, high - peak


def _scaled(trace: Trace, tensors: Iterable[int], factor: float) -> Trace:
    """The trace with some of its tensors ``factor`` times as large."""
    sizes = list(trace.sizes)
    for tensor in tensors:
        sizes[tensor] = int(sizes[tensor] * factor)
    return replace(trace, sizes=sizes)
