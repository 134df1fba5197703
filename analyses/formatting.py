"""Names as people read them, and the numbers that only the site shows."""

from __future__ import annotations

from dataclasses import dataclass

from analyses.models import Analysis
from engine.core.numbers import significant
from engine.gpus import ANY, GPUS, LOCAL
from engine.interface.tokens import Tokens
from engine.interface.trial import Source
from engine.interface.workload import OWN_CONFIG
from engine.models.presets import PRESETS

SOURCE_MEANINGS = {
    Source.MEASURED: "Read from real training steps on the node's device.",
    Source.PREDICTED: "Computed from a trace of the training step; nothing ran on the GPU.",
    Source.COMPUTED: "Calculated in part from formulas, beside a trace; nothing ran on the GPU.",
    Source.ASSUMED: "Entered by a person or taken from the catalogue (prices, for example).",
}


@dataclass(frozen=True)
class Card:
    """One number of an answer on a page.

    Attributes:
        sources: Two where a measured or predicted ratio meets an assumed price.
        tone: ``good``, ``quiet`` or empty.
    """

    label: str
    value: str
    note: str
    sources: tuple[Source, ...]
    tone: str = ""


def fine_share(value: float) -> str:
    """A part of a whole in percent, with one decimal: ``0.0349`` is ``3.5%``."""
    return f"{100 * value:.1f}%"


def scaled(value: float, power: int) -> str:
    """A rate in units of a power of ten: ``scaled(125e12, 12)`` is ``125``."""
    return significant(value / 10**power)


def in_thousands(value: float) -> str:
    """A round number with a letter for thousands and more, as plotly labels an axis: ``500k``."""
    letters = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
    unit, letter = next((one for one in letters if value >= one[0]), (1.0, ""))
    return f"{value / unit:g}{letter}"


def tokens_per_second(samples_per_second: float | None, tokens: Tokens | None) -> str:
    """A speed in tokens, such as ``28,900 tokens/s``; empty where there are none to count."""
    speed = tokens.per_second(samples_per_second) if tokens else None
    return "" if tokens is None or speed is None else f"{significant(speed)} {tokens.unit}/s"


def parameter_count(value: int) -> str:
    """A number of parameters as papers write it: ``110M``, ``1.24B``."""
    billions = value >= 999_500_000
    return f"{value / (1e9 if billions else 1e6):.3g}{'B' if billions else 'M'}"


def duration(seconds: float) -> str:
    """A span of time: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``1 h 02 min``."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, rest = divmod(total, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def exact(value: float) -> str:
    """All digits of a number, with thousands separators: ``8``, ``2.5``, ``12,000``."""
    return f"{value:,.10g}"


def plain_number(value: float) -> str:
    """A number as it is typed into a field: ``8``, not ``8.0``."""
    return str(int(value)) if value == int(value) else str(value)


def model_name(name: str) -> str:
    """The display name of a preset; any other name stays as it is."""
    if name == OWN_CONFIG:
        return "own config"
    return PRESETS[name].display_name if name in PRESETS else name


def gpu_name(name: str) -> str:
    """A GPU as its vendor writes it; a name that is not in the catalogue stays as it is."""
    if name == LOCAL:
        return "this lab's node"
    if name == ANY:
        return "any GPU"
    return GPUS[name].display_name if name in GPUS else name


def local_gpu(kind: str) -> str:
    """The name, in the form and the API, of a node's kind of GPU to measure on."""
    return f"{LOCAL}:{kind}"


def gpu_of(analysis: Analysis) -> str:
    """The GPU of an analysis, measured on or of the catalogue, as its vendor writes it."""
    return analysis.measured_gpu or gpu_name(analysis.gpu)
