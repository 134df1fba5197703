"""The numbers of a comparison, each as a cell of one analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from analyses.formatting import (
    UNKNOWN,
    gib_with_unit,
    milliseconds,
    percent,
    significant,
    times,
    usd,
    whole,
)
from analyses.pages.compare.columns import Column
from analyses.savings.estimate import has_gain, has_probable_gain
from analyses.stored_result import tokens_in, trial_at
from engine.answer.economics import usd_per_million_samples
from engine.core.choices import Goal
from engine.gpus import GPUS
from engine.interface.result import Source, Trial


@dataclass(frozen=True)
class Cell:
    """One number of one analysis.

    Attributes:
        value: The number for the difference; ``None`` where there is none.
        low, high: Its interval, where it has one.
        delta: The difference from the baseline as text; empty where there is none.
        tone: Whether the difference is ``better``, ``worse`` or neither (empty).
        best: ``best`` for the best of its row, ``probably best`` where another's range overlaps
            its own; else empty.
    """

    text: str
    sources: tuple[Source, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    delta: str = ""
    tone: str = ""
    best: str = ""


@dataclass(frozen=True)
class Figure:
    """A row of results and its computation.

    Attributes:
        better: 1 for more, -1 for less, 0 for neither.
        is_optional: Whether it is left out where no analysis has it.
    """

    key: str
    label: str
    cell: Callable[[Column], Cell]
    better: int = 0
    unit: str = ""
    is_optional: bool = False


NOTHING = Cell(UNKNOWN)


def _largest(column: Column) -> Cell:
    result = column.result
    if result is None:
        return NOTHING
    note = "" if result.next_batch_size_fails else "the search ended here"
    return Cell(
        whole(result.largest_batch_size), (result.source,), result.largest_batch_size, note=note
    )


def _recommended(column: Column) -> Cell:
    result, source = column.result, column.recommended_source
    if result is None or source is None:
        return NOTHING
    return Cell(whole(result.recommended_batch_size), (source,), result.recommended_batch_size)


def _of_texts(name: str, unit: str) -> Callable[[Column], Cell]:
    def cell(column: Column) -> Cell:
        value, source = getattr(column.analysis, name), column.analysis.source
        if column.analysis.goal == Goal.BATCH or value is None or not source:
            return NOTHING
        return Cell(f"{whole(value)} {unit}", (Source(source),), value)

    return cell


def _worst_tokens(column: Column) -> Cell:
    lengths = column.result.lengths if column.result else None
    if lengths is None:
        return NOTHING
    note = f"{lengths.probability:.0%} of runs have none longer"
    worst = lengths.worst_tokens
    return Cell(f"{whole(worst)} tokens", (Source.PREDICTED,), worst, note=note)


def _padding(column: Column) -> Cell:
    lengths = column.result.lengths if column.result else None
    if lengths is None:
        return NOTHING
    return Cell(f"{lengths.padding:.0%}", (Source.PREDICTED,), lengths.padding)


def _speedup(column: Column) -> Cell:
    result = column.result
    if result is None or result.speedup is None:
        return NOTHING
    source = result.savings.source if result.savings else result.source
    if has_probable_gain(result):
        return Cell(f"probably {times(result.speedup)}", (source,))
    if not has_gain(result):
        return Cell("no gain", (source,))
    return Cell(times(result.speedup), (source,), result.speedup)


def _samples_per_second(column: Column) -> Cell:
    return _speed_of(column.recommended)


def _speed_of(trial: Trial | None) -> Cell:
    """Samples per second of one batch, with the range that its step time has."""
    speed = trial.samples_per_second if trial else None
    if trial is None or speed is None:
        return NOTHING
    if not (trial.step_seconds and trial.step_seconds_low and trial.step_seconds_high):
        return Cell(significant(speed), (trial.source,), speed)
    samples = speed * trial.step_seconds
    low, high = samples / trial.step_seconds_high, samples / trial.step_seconds_low
    note = f"{significant(low)}\N{EN DASH}{significant(high)}"
    return Cell(significant(speed), (trial.source,), speed, low, high, note)


def _tokens_per_second(column: Column) -> Cell:
    samples, tokens = _samples_per_second(column), tokens_in(column.analysis)
    speed = tokens.per_second(samples.value) if tokens else None
    if tokens is None or speed is None:
        return NOTHING
    low, high = tokens.per_second(samples.low), tokens.per_second(samples.high)
    ends = "" if low is None else f"{significant(low)}\N{EN DASH}{significant(high)} "
    return Cell(significant(speed), samples.sources, speed, low, high, f"{ends}{tokens.unit}")


def _step_time(column: Column) -> Cell:
    trial = column.recommended
    if trial is None or trial.step_seconds is None:
        return NOTHING
    return Cell(f"{milliseconds(trial.step_seconds)} ms", (trial.source,), trial.step_seconds)


def _memory(name: str) -> Callable[[Column], Cell]:
    def cell(column: Column) -> Cell:
        trial = column.recommended
        size = getattr(trial, name) if trial else None
        if trial is None or size is None:
            return NOTHING
        note = ""
        if name == "device_used_bytes" and column.result:
            note = f"{percent(size, column.result.gpu.total_bytes)} of the GPU"
        return Cell(gib_with_unit(size), (trial.source,), size, note=note)

    return cell


def _current_speed(column: Column) -> Cell:
    """At the batch that the analysis starts from."""
    size = column.analysis.current_batch_size
    trial = trial_at(column.result, size) if column.result and size else None
    if trial is None:
        return NOTHING
    return _speed_of(trial) if trial.fits else Cell("does not fit", (trial.source,))


def _usd_per_million(column: Column) -> Cell:
    """The cost of a million samples, which compares across GPUs as hours do not."""
    return _usd_per_million_at(column, _samples_per_second(column))


def _small_usd(value: float) -> str:
    """Below a dollar with three significant digits: a million tokens cost less than a cent."""
    return usd(value) if value >= 1 else f"${significant(value)}"


def _usd_per_million_tokens(column: Column) -> Cell:
    """The same for tokens, which compares across lengths."""
    return _usd_per_million_at(column, _tokens_per_second(column), _small_usd)


def _current_usd_per_million(column: Column) -> Cell:
    speed = _current_speed(column)
    return _usd_per_million_at(column, speed) if speed.value else speed


def _usd_per_million_at(column: Column, speed: Cell, text: Callable[[float], str] = usd) -> Cell:
    price = _price_per_hour(column)
    if not speed.value or price is None:
        return NOTHING
    price *= column.analysis.request.get("world_size") or 1
    cost = usd_per_million_samples(price, speed.value)
    sources = (*speed.sources, Source.ASSUMED)
    if not (speed.low and speed.high):
        return Cell(text(cost), sources, cost)
    low, high = (usd_per_million_samples(price, end) for end in (speed.high, speed.low))
    return Cell(text(cost), sources, cost, low, high, f"{text(low)}\N{EN DASH}{text(high)}")


def _price_per_hour(column: Column) -> float | None:
    """Price of one GPU per hour: the result's, else the request's, else the catalogue's."""
    result, analysis = column.result, column.analysis
    if result and result.savings:
        return result.savings.price_per_hour_usd
    own: float | None = analysis.request.get("price_per_hour_usd")
    if own is not None or analysis.gpu not in GPUS:
        return own
    return GPUS[analysis.gpu].price_per_hour_usd


def _current_usd_per_run(column: Column) -> Cell:
    """Hours times price, both assumed."""
    savings = column.result.savings if column.result else None
    if savings is None:
        return NOTHING
    return Cell(usd(savings.current_usd_per_run), (Source.ASSUMED,), savings.current_usd_per_run)


def _of_savings(name: str, text: Callable[[float], str]) -> Callable[[Column], Cell]:
    def cell(column: Column) -> Cell:
        savings = column.result.savings if column.result else None
        if savings is None:
            return NOTHING
        value = getattr(savings, name)
        return Cell(text(value), (savings.source, Source.ASSUMED), value)

    return cell


def _of_energy(name: str) -> Callable[[Column], Cell]:
    """The energy of the GPUs: their power is predicted, also where speeds were measured."""

    def cell(column: Column) -> Cell:
        savings = column.result.savings if column.result else None
        if savings is None or savings.energy is None:
            return NOTHING
        value = getattr(savings.energy, name)
        return Cell(significant(value), (Source.PREDICTED, Source.ASSUMED), value)

    return cell


def _per_year(name: str, text: Callable[[float], str]) -> Callable[[Column], Cell]:
    """Savings per year, realised or potential."""
    of_savings = _of_savings(name, text)

    def cell(column: Column) -> Cell:
        found = of_savings(column)
        if found is NOTHING:
            return found
        return replace(found, note="realised" if column.analysis.adopted_at else "potential")

    return cell


FIGURES = (
    Figure(
        "samples_per_second",
        "Samples per second at the recommended batch",
        _samples_per_second,
        better=1,
        unit="samples/s",
    ),
    Figure(
        "tokens_per_second",
        "Tokens per second at the recommended batch",
        _tokens_per_second,
        better=1,
        unit="tokens/s",
        is_optional=True,
    ),
    Figure(
        "usd_per_million_samples",
        "Cost of a million samples",
        _usd_per_million,
        better=-1,
        unit="USD",
    ),
    Figure(
        "usd_per_million_tokens",
        "Cost of a million tokens",
        _usd_per_million_tokens,
        better=-1,
        unit="USD",
        is_optional=True,
    ),
    Figure(
        "current_samples_per_second",
        "Samples per second at the current batch",
        _current_speed,
        better=1,
        unit="samples/s",
        is_optional=True,
    ),
    Figure(
        "current_usd_per_million_samples",
        "Cost of a million samples at the current batch",
        _current_usd_per_million,
        better=-1,
        unit="USD",
        is_optional=True,
    ),
    Figure(
        "largest_texts",
        "Most texts at once",
        _of_texts("largest_batch_size", "texts"),
        better=1,
        unit="texts",
        is_optional=True,
    ),
    Figure(
        "longest_tokens",
        "Longest text that fits",
        _of_texts("longest_tokens", "tokens"),
        better=1,
        unit="tokens",
        is_optional=True,
    ),
    Figure("recommended_batch_size", "Recommended batch", _recommended),
    Figure("largest_batch_size", "Largest batch that fits", _largest, better=1),
    Figure("worst_tokens", "Longest row of a run", _worst_tokens, unit="tokens", is_optional=True),
    Figure("padding", "Share of padding", _padding, better=-1, is_optional=True),
    Figure("step_seconds", "Step time at the recommended batch", _step_time, unit="seconds"),
    *(
        Figure(name, f"{label} at the recommended batch", _memory(name), unit="bytes")
        for name, label in (
            ("peak_allocated_bytes", "Peak allocated"),
            ("peak_reserved_bytes", "Peak reserved"),
            ("device_used_bytes", "Device used"),
        )
    ),
    Figure("current_usd_per_run", "Cost per run, current batch", _current_usd_per_run, unit="USD"),
    Figure(
        "recommended_usd_per_run",
        "Cost per run, recommended batch",
        _of_savings("recommended_usd_per_run", usd),
        unit="USD",
    ),
    Figure("speedup", "Speedup over the current batch", _speedup),
    Figure("usd_per_year", "Savings per year", _per_year("usd_per_year", usd), unit="USD"),
    Figure(
        "gpu_hours_per_year",
        "GPU-hours saved per year",
        _per_year("gpu_hours_per_year", significant),
        unit="GPU-hours",
    ),
    *(
        Figure(name, label, _of_energy(name), unit=unit, is_optional=True)
        for name, label, unit in (
            ("recommended_kwh_per_run", "GPU energy per run, recommended batch, kWh", "kWh"),
            ("kwh_per_year", "GPU energy saved per year, kWh", "kWh"),
            ("kg_co2e_per_year", "CO2e saved per year, kg", "kg"),
        )
    ),
)
"""In the order of the table."""

FIGURE = {figure.key: figure.cell for figure in FIGURES}
"""The function that computes each number, by its name in the API."""
