"""The numbers that people see, each described once.

Terminals, pages, tables, comparisons and files take from here what a number is called, how many
digits it has, where its value comes from, and which of two is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ..core.numbers import (
    UNKNOWN,
    milliseconds,
    share,
    significant,
    small_usd,
    times,
    usd,
    whole,
)
from ..core.sizes import gib_number
from . import amounts
from .amounts import Amount, Answered, Of


class Better(IntEnum):
    """The better of two values of a number, as a factor to rank by."""

    LOWER = -1
    NEITHER = 0
    HIGHER = 1


@dataclass(frozen=True)
class Unit:
    """A unit, and the digits of its values.

    Attributes:
        name: Unit of the values in the API and in exports; empty for counts and ratios.
        number: Formats a value in the unit that people read, which it leaves out.
        shown: That unit, such as ``GiB`` for bytes; empty where the number has it, as dollars do.
    """

    name: str
    number: Callable[[float | None], str]
    shown: str = ""


COUNT = Unit("", whole)
RATIO = Unit("", times)
SHARE = Unit("", share)
BYTES = Unit("bytes", gib_number, "GiB")
SECONDS = Unit("seconds", milliseconds, "ms")
USD = Unit("USD", usd)
SMALL_USD = Unit("USD", small_usd)
GPU_HOURS = Unit("GPU-hours", significant, "GPU-hours")
SAMPLES = Unit("samples/s", significant, "samples/s")
TOKENS = Unit("tokens/s", significant, "tokens/s")
KWH = Unit("kWh", significant, "kWh")
KG = Unit("kg", significant, "kg")


@dataclass(frozen=True)
class Figure:
    """One number that people see.

    Attributes:
        name: Its name in the API; of a trial's number, also that of the trial's field.
        label: Its name where the batch that it belongs to stands beside it.
        of: Computes it from an answer.
        better: Which of two values is better for the same work.
        title: Its name where it stands alone; empty where that is the label.
        says_unit: Whether the label says the unit, so that the number need not.
        is_optional: Whether a comparison leaves it out where no answer has it.
    """

    name: str
    label: str
    unit: Unit
    of: Of
    better: Better = Better.NEITHER
    title: str = ""
    says_unit: bool = False
    is_optional: bool = False

    @property
    def full_label(self) -> str:
        return self.title or self.label

    def number(self, value: float | None) -> str:
        """A value without its unit, for a column whose heading has it; a dash if unknown."""
        return self.unit.number(value)

    def text(self, value: float | None) -> str:
        """A value beside its label: with its unit, unless the label says it."""
        return self.number(value) if self.says_unit else self.with_unit(value)

    def with_unit(self, value: float | None) -> str:
        if value is None or not self.unit.shown:
            return self.number(value)
        return f"{self.number(value)} {self.unit.shown}"

    def range(self, low: float, high: float) -> str:
        """The ends of an interval, without the unit."""
        return f"{self.number(low)}\N{EN DASH}{self.number(high)}"

    def shown(self, amount: Amount | None) -> str:
        """An amount beside its label; a dash where there is none."""
        if amount is None:
            return UNKNOWN
        return amount.words or self.text(amount.value)

    def shown_of(self, answered: Answered) -> str:
        return self.shown(self.of(answered))


RECOMMENDED_BATCH = Figure(
    "recommended_batch_size", "Recommended batch", COUNT, amounts.recommended_batch
)
LARGEST_BATCH = Figure(
    "largest_batch_size",
    "Largest batch",
    COUNT,
    amounts.largest_batch,
    Better.HIGHER,
    "Largest batch that fits",
)
CURRENT_BATCH = Figure("current_batch_size", "Current batch", COUNT, amounts.current_batch)
CURRENT_HEADROOM = Figure(
    "current_headroom_bytes", "Free at current batch", BYTES, amounts.current_headroom
)
LARGEST_HEADROOM = Figure(
    "largest_headroom_bytes", "Free at largest batch", BYTES, amounts.largest_headroom
)
SPEEDUP = Figure(
    "speedup", "Speedup", RATIO, amounts.speedup, title="Speedup over the current batch"
)
USD_PER_YEAR = Figure("usd_per_year", "Savings per year", USD, amounts.per_year("usd_per_year"))
HOURS_PER_YEAR = Figure(
    "gpu_hours_per_year",
    "GPU-hours saved per year",
    GPU_HOURS,
    amounts.per_year("gpu_hours_per_year"),
    says_unit=True,
)
CURRENT_COST = Figure(
    "current_usd_per_run",
    "Cost per run, current batch",
    USD,
    amounts.current_usd_per_run,
    title="Cost per run of its assumed hours, current batch",
)
RECOMMENDED_COST = Figure(
    "recommended_usd_per_run",
    "Cost per run, recommended batch",
    USD,
    amounts.of_savings("recommended_usd_per_run"),
    title="Cost per run of its assumed hours, recommended batch",
)
KWH_PER_RUN = Figure(
    "recommended_kwh_per_run",
    "GPU energy per run, recommended batch, kWh",
    KWH,
    amounts.of_energy("recommended_kwh_per_run"),
    says_unit=True,
    is_optional=True,
)
KWH_PER_YEAR = Figure(
    "kwh_per_year",
    "GPU energy saved per year, kWh",
    KWH,
    amounts.of_energy("kwh_per_year"),
    says_unit=True,
    is_optional=True,
)
CO2E_PER_YEAR = Figure(
    "kg_co2e_per_year",
    "CO2e saved per year, kg",
    KG,
    amounts.of_energy("kg_co2e_per_year"),
    says_unit=True,
    is_optional=True,
)

SPEED = Figure(
    "samples_per_second",
    "Samples per second",
    SAMPLES,
    amounts.samples_per_second,
    Better.HIGHER,
    "Samples per second at the recommended batch",
    says_unit=True,
)
TOKEN_SPEED = Figure(
    "tokens_per_second",
    "Tokens per second",
    TOKENS,
    amounts.tokens_per_second,
    Better.HIGHER,
    "Tokens per second at the recommended batch",
    says_unit=True,
    is_optional=True,
)
CURRENT_SPEED = Figure(
    "current_samples_per_second",
    "Samples per second",
    SAMPLES,
    amounts.current_samples_per_second,
    Better.HIGHER,
    "Samples per second at the current batch",
    says_unit=True,
    is_optional=True,
)
COST = Figure(
    "usd_per_million_samples",
    "Cost of a million samples",
    USD,
    amounts.usd_per_million(amounts.samples_per_second, usd),
    Better.LOWER,
)
TOKEN_COST = Figure(
    "usd_per_million_tokens",
    "Cost of a million tokens",
    SMALL_USD,
    amounts.usd_per_million(amounts.tokens_per_second, small_usd),
    Better.LOWER,
    is_optional=True,
)
COST_AT_CURRENT = Figure(
    "current_usd_per_million_samples",
    "Cost of a million samples",
    USD,
    amounts.usd_per_million(amounts.current_samples_per_second, usd),
    Better.LOWER,
    "Cost of a million samples at the current batch",
    is_optional=True,
)
STEP_TIME = Figure(
    "step_seconds",
    "Step time",
    SECONDS,
    amounts.at_recommended("step_seconds"),
    title="Step time at the recommended batch",
)
PEAK_ALLOCATED, PEAK_RESERVED, DEVICE_USED = MEMORY = tuple(
    Figure(
        name,
        label,
        BYTES,
        amounts.at_recommended(name),
        title=f"{label} at the recommended batch",
    )
    for name, label in (
        ("peak_allocated_bytes", "Peak allocated"),
        ("peak_reserved_bytes", "Peak reserved"),
        ("device_used_bytes", "Device used"),
    )
)

LARGEST_TEXTS = Figure(
    "largest_texts",
    "Most texts at once",
    Unit("texts", whole, "texts"),
    amounts.of_texts("largest_texts"),
    Better.HIGHER,
    is_optional=True,
)
LONGEST_TEXT = Figure(
    "longest_tokens",
    "Longest text",
    Unit("tokens", whole, "tokens"),
    amounts.of_texts("longest_tokens"),
    Better.HIGHER,
    "Longest text that fits",
    is_optional=True,
)
LONGEST_ROW = Figure(
    "worst_tokens",
    "Longest row",
    Unit("tokens", whole, "tokens"),
    amounts.worst_tokens,
    title="Longest row of a run",
    is_optional=True,
)
PADDING = Figure(
    "padding",
    "Padding",
    SHARE,
    amounts.padding,
    Better.LOWER,
    "Share of padding",
    is_optional=True,
)

FIGURES = (
    SPEED,
    TOKEN_SPEED,
    COST,
    TOKEN_COST,
    CURRENT_SPEED,
    COST_AT_CURRENT,
    LARGEST_TEXTS,
    LONGEST_TEXT,
    RECOMMENDED_BATCH,
    LARGEST_BATCH,
    LONGEST_ROW,
    PADDING,
    STEP_TIME,
    *MEMORY,
    CURRENT_COST,
    RECOMMENDED_COST,
    SPEEDUP,
    USD_PER_YEAR,
    HOURS_PER_YEAR,
    KWH_PER_RUN,
    KWH_PER_YEAR,
    CO2E_PER_YEAR,
)
"""The numbers that answers are compared by, in the order of the table."""

BY_NAME = {
    figure.name: figure for figure in (CURRENT_BATCH, CURRENT_HEADROOM, LARGEST_HEADROOM, *FIGURES)
}
