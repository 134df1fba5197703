"""The worth of a result: speedup, cost per run and yearly savings.

Computed with the stored assumptions, or with others that a reader tries on the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlencode

from analyses.formatting import Card, exact, plain_number
from analyses.savings.certainty import counted
from engine.answer import economics
from engine.answer.amounts import speedup_words
from engine.answer.energy import power_in
from engine.answer.figures import (
    CO2E_PER_YEAR,
    CURRENT_BATCH,
    CURRENT_COST,
    HOURS_PER_YEAR,
    KWH_PER_RUN,
    KWH_PER_YEAR,
    RECOMMENDED_BATCH,
    RECOMMENDED_COST,
    SPEEDUP,
    USD_PER_YEAR,
)
from engine.answer.worth import Gain, gain_of, has_gain
from engine.core.errors import InvalidInput
from engine.core.numbers import UNKNOWN, significant, times, times_range, usd
from engine.interface.assumptions import Assumptions
from engine.interface.result import AnalysisResult, Energy, Savings
from engine.interface.trial import Source

LABELS = {
    "runs_per_year": "Runs per year",
    "hours_per_run": "GPU-hours per run today",
    "price_per_hour_usd": "USD per GPU-hour",
    "grid_co2e_grams_per_kwh": "g CO2e per kWh",
}
"""The last one only matters where the energy is known."""


@dataclass(frozen=True)
class Field:
    """One assumption, as the page's form shows it."""

    name: str
    label: str
    value: str
    error: str


@dataclass(frozen=True)
class Estimate:
    """The numbers of an answer that depend on assumptions, and the assumptions.

    Attributes:
        fields: Empty where there is nothing to compute with.
        query: The assumptions that differ from the stored ones, as a query string.
    """

    figures: list[Card]
    fields: list[Field]
    query: str

    @property
    def wrong(self) -> list[Field]:
        """The fields with errors; the figures then rest on the stored assumptions."""
        return [field for field in self.fields if field.error]


def estimate_of(result: AnalysisResult, query: Mapping[str, str], *, adopted: bool) -> Estimate:
    """The estimate with the assumptions in a query; those it lacks are as stored."""
    saved = result.savings
    if saved is None:
        return Estimate(estimate_figures(result, adopted=adopted), [], "")
    stored = asdict(_stored(saved))
    labels = {name: text for name, text in LABELS.items() if saved.energy or "grid" not in name}
    given = {name: query.get(name) or plain_number(stored[name]) for name in labels}
    wrong: dict[str, str] = {}
    changed: dict[str, str] = {}
    try:
        tried = Assumptions(**given)  # type: ignore[arg-type]  # it reads numbers from text
    except InvalidInput as error:
        wrong = error.fields
    else:
        values = asdict(tried)
        changed = {name: given[name] for name in labels if values[name] != stored[name]}
        result = with_assumptions(result, tried) if changed else result
    figures = estimate_figures(result, adopted=adopted)
    return Estimate(
        figures=_supposed(figures) if changed else figures,
        fields=[
            Field(name, label, given[name], wrong.get(name, "")) for name, label in labels.items()
        ],
        query=urlencode(changed),
    )


def _supposed(figures: list[Card]) -> list[Card]:
    """The same as suppositions: they are neither realised nor potential, and never green."""
    return [
        replace(figure, label=f"{_WHAT_IF} {figure.label.split(maxsplit=1)[-1]}", tone="")
        if figure.label.endswith("savings per year")
        else replace(figure, tone="")
        for figure in figures
    ]


_WHAT_IF = "What-if"


def with_assumptions(result: AnalysisResult, assumptions: Assumptions) -> AnalysisResult:
    """The same answer with its savings recomputed; without a speedup it stays as it is.

    A price of ``None`` keeps the result's own.
    """
    saved, ratio = result.savings, result.speedup
    if saved is None or ratio is None:
        return result
    low, high = result.speedup_low, result.speedup_high
    if low is None:  # an older version stored the judgement, but not the interval
        low = ratio if has_gain(result) else 1.0
    gained = economics.Speedup(ratio, low, ratio if high is None else high)
    price = assumptions.price_per_hour_usd
    price = saved.price_per_hour_usd if price is None else price
    power = power_in(result) if saved.energy else None
    taken = has_gain(result)
    again = economics.savings(assumptions, price, gained, saved.source, power, taken=taken)
    return replace(result, savings=again)


def estimate_figures(result: AnalysisResult, *, adopted: bool = False) -> list[Card]:
    """Speedup, cost per run, yearly savings and, where the GPU's power is known, energy."""
    savings = result.savings
    yearly = f"{'Realised' if adopted else 'Potential'} savings per year"
    if savings:
        money = [_cost_figure(savings), _savings_figure(yearly, savings, result)]
        energy = [_energy_figure(savings.energy)] if savings.energy else []
        return [_speedup_figure(result), *money, *energy]
    note = "without a speedup there is nothing to compare"
    if result.current_batch_size is None:
        note = "there is no batch today to save from"
    nothing = [Card(label, UNKNOWN, note, (), tone="quiet") for label in ("Cost per run", yearly)]
    return [_speedup_figure(result), *nothing]


def _compared(result: AnalysisResult) -> int | None:
    """The batch that a speedup is over; ``None`` without one."""
    if result.current_batch_size is None and result.today is not None:
        return result.today.batch_size
    return result.current_batch_size


def _speedup_figure(result: AnalysisResult) -> Card:
    before, recommended = _compared(result), RECOMMENDED_BATCH.text(result.recommended_batch_size)
    source = result.savings.source if result.savings else result.source
    if before is None:
        note = "there is no batch today to compare with"
        return Card(SPEEDUP.label, "none", note, (source,), tone="quiet")
    current = CURRENT_BATCH.text(before)
    if result.current_batch_size is not None and result.current_headroom_bytes is None:
        note = f"batch {current} does not fit, so there is no speed to compare with"
        return Card(SPEEDUP.label, "none", note, (source,), tone="quiet")
    if result.speedup is None:
        return Card(SPEEDUP.label, "not known", "no step times", (source,), tone="quiet")
    gain = gain_of(result)
    value = speedup_words(result.speedup, gain)
    over = f"{recommended} vs. {current}"
    if result.today is not None:
        without = "without" if result.current_batch_size is None else "today"
        over = f"batch {recommended} with the changes vs. batch {current} {without}"
    if gain is Gain.SURE:
        note = f"throughput at {over}{_interval(result)}"
        return Card(SPEEDUP.label, value, note, (source,), tone="good")
    if gain is Gain.PROBABLE:
        note = f"{over}{_interval(result)}; two short runs would tell"
    elif current == recommended:
        note = f"batch {current} is already the recommended one"
    elif result.speedup < 1:
        note = f"batch {recommended} saves memory, not time: {times(result.speedup)} the speed"
    else:
        small = "not worth a change" if (result.speedup_low or 0) > 1 else "within the noise"
        note = f"{times(result.speedup)} at {over} is {small}"
        note += _interval(result)
    return Card(SPEEDUP.label, value, note, (source,), tone="quiet")


def _interval(result: AnalysisResult) -> str:
    low, high = result.speedup_low, result.speedup_high
    if low is None or high is None:
        return ""
    rounds = ""
    if result.comparison is not None:
        count = len(result.comparison.current_samples_per_second)
        rounds = f" over {count} interleaved rounds"
    return f", range {times_range(low, high)}{rounds}"


def _cost_figure(savings: Savings) -> Card:
    current = CURRENT_COST.text(savings.current_usd_per_run)
    recommended = RECOMMENDED_COST.text(savings.recommended_usd_per_run)
    price = f"at {usd(savings.price_per_hour_usd)} per GPU-hour"
    hours = f"{exact(savings.hours_per_run)} GPU-hours per run today"
    value = current if current == recommended else f"{current} → {recommended}"
    return Card("Cost per run", value, f"{hours}, {price}", (savings.source, Source.ASSUMED))


def _savings_figure(label: str, savings: Savings, result: AnalysisResult) -> Card:
    runs = f"{exact(savings.runs_per_year)} runs per year"
    note = f"{HOURS_PER_YEAR.with_unit(savings.gpu_hours_per_year)} over {runs}"
    ends = counted(result.source, vars(result))
    low, high = (USD_PER_YEAR.text(savings.usd_per_year * end) for end in (ends.low, ends.high))
    return Card(
        label,
        USD_PER_YEAR.text(savings.usd_per_year),
        note if low == high else f"{low} to {high}; {note}",
        (savings.source, Source.ASSUMED),
        tone="good" if savings.usd_per_year > 0 else "quiet",
    )


def _energy_figure(energy: Energy) -> Card:
    """Energy per run, and in one line what a year saves; its power is never measured."""
    now, then = energy.current_kwh_per_run, energy.recommended_kwh_per_run
    value = KWH_PER_RUN.with_unit(then)
    watts = f"{significant(energy.recommended_watts)} of {significant(energy.power_limit_watts)} W"
    note = f"at {watts} per GPU; the GPUs only"
    if energy.kwh_per_year:
        value = f"{KWH_PER_RUN.number(now)} → {value}"
        low, high = energy.kwh_per_year_low, energy.kwh_per_year_high
        note = (
            f"{KWH_PER_YEAR.with_unit(energy.kwh_per_year)} ({_signed(low)} to {_signed(high)}) "
            f"and {CO2E_PER_YEAR.with_unit(energy.kg_co2e_per_year)} CO2e saved per year, at "
            f"{significant(energy.current_watts)} → {watts} per GPU and "
            f"{exact(energy.grid_co2e_grams_per_kwh)} g CO2e per kWh; the GPUs only"
        )
    sources = (Source.PREDICTED, Source.ASSUMED)
    # Green only if it surely saves: a faster batch may draw more power than it saves time.
    is_sure = energy.kwh_per_year_low > 0
    return Card("Energy per run", value, note, sources, "good" if is_sure else "quiet")


def _signed(value: float) -> str:
    return significant(value).replace("-", "\N{MINUS SIGN}")


def _stored(saved: Savings) -> Assumptions:
    usual = Assumptions.grid_co2e_grams_per_kwh
    return Assumptions(
        saved.hours_per_run,
        saved.runs_per_year,
        saved.price_per_hour_usd,
        saved.energy.grid_co2e_grams_per_kwh if saved.energy else usual,
    )
