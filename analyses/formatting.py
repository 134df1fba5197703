"""Numbers and names as people read them: units, no more digits than are known, vendors' names."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10

from analyses.models import Analysis
from engine.answer.worth import WORTH_PREDICTED
from engine.core.sizes import GIB
from engine.gpus import ANY, GPUS, LOCAL
from engine.interface.result import Source
from engine.interface.tokens import Tokens
from engine.interface.workload import OWN_CONFIG
from engine.models.presets import PRESETS

UNKNOWN = "\N{EN DASH}"
_TIMES = "\N{MULTIPLICATION SIGN}"
_MIN_SHOWN = 0.005
"""The smallest value that two decimals can show; smaller ones become "<0.01"."""

SOURCE_MEANINGS = {
    Source.MEASURED: "Read from real training steps on the node's device.",
    Source.PREDICTED: "Computed from a trace of the training step; nothing ran on the GPU.",
    Source.COMPUTED: "Calculated in part from formulas, beside a trace; nothing ran on the GPU.",
    Source.ASSUMED: "Entered by a person or taken from the catalogue (prices, for example).",
}


@dataclass(frozen=True)
class Figure:
    """One number of an answer, as its card shows it.

    Attributes:
        sources: Two where a measured or predicted ratio meets an assumed price.
        tone: ``good``, ``quiet`` or empty.
    """

    label: str
    value: str
    note: str
    sources: tuple[Source, ...]
    tone: str = ""


def gib(value: int | None) -> str:
    """Bytes as GiB with two decimals and no unit, for a column whose heading has the unit."""
    if value is None:
        return UNKNOWN
    amount = value / GIB
    return "<0.01" if 0 < amount < _MIN_SHOWN else f"{amount:,.2f}"


def gib_with_unit(value: int | None) -> str:
    """Bytes as ``21.43 GiB``."""
    return UNKNOWN if value is None else f"{gib(value)} GiB"


def share(value: float) -> str:
    """A part of a whole in percent: ``0.35`` is ``35%``."""
    return f"{value:.0%}"


def fine_share(value: float) -> str:
    """The same with one decimal: ``0.0349`` is ``3.5%``."""
    return f"{100 * value:.1f}%"


def scaled(value: float, power: int) -> str:
    """A rate in units of a power of ten: ``scaled(125e12, 12)`` is ``125``."""
    return significant(value / 10**power)


def whole(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def batch_today(batch_size: int | None) -> str:
    """The current batch size of an analysis, which may have none."""
    return "none yet" if batch_size is None else whole(batch_size)


def significant(value: float | None, digits: int = 3) -> str:
    """A number rounded to ``digits`` significant digits, with thousands separators."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    for _ in range(2):  # twice, since 9.996 becomes 10.0 and then has a digit too many
        places = digits - 1 - floor(log10(abs(value)))
        value = round(value, places)
    return f"{value:,.{max(places, 0)}f}"


def tokens_per_second(samples_per_second: float | None, tokens: Tokens | None) -> str:
    """A speed in tokens, such as ``28,900 tokens/s``; empty where there are none to count."""
    speed = tokens.per_second(samples_per_second) if tokens else None
    return "" if tokens is None or speed is None else f"{significant(speed)} {tokens.unit}/s"


def usd(value: float | None) -> str:
    """Dollars: cents below 100, three significant digits above, as the inputs are no better."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "$0"
    if value < _MIN_SHOWN:
        return "<$0.01"
    return f"${significant(value)}" if value >= 100 else f"${value:,.2f}"


def times(value: float | None) -> str:
    return UNKNOWN if value is None else f"{significant(value)}{_TIMES}"


def speedup(ratio: float | None, has_gain: bool | None) -> str:
    """A speedup in a list: its ratio, ``probably`` that, or ``no gain`` if not worth a change."""
    if ratio is None:
        return UNKNOWN
    if has_gain:
        return times(ratio)
    return f"probably {times(ratio)}" if ratio >= WORTH_PREDICTED else "no gain"


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds, without the unit."""
    return UNKNOWN if seconds is None else significant(seconds * 1000)


def parameter_count(value: int) -> str:
    """A number of parameters as papers write it: ``110M``, ``1.24B``."""
    billions = value >= 999_500_000
    return f"{value / (1e9 if billions else 1e6):.3g}{'B' if billions else 'M'}"


def percent(part: int, total: int) -> str:
    share = 100 * part / total
    return "<1%" if 0 < share < 1 else f"{share:.0f}%"


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
