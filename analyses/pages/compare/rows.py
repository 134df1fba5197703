"""The rows of a comparison: the settings, and the results with their differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from analyses.formatting import (
    UNKNOWN,
    gib_with_unit,
    gpu_of,
    milliseconds,
    percent,
    significant,
    times,
    usd,
    whole,
)
from analyses.pages.compare.columns import Column
from analyses.pages.settings import settings_of
from analyses.savings.estimate import has_gain, has_probable_gain
from analyses.stored_result import tokens_in
from engine.answer.economics import usd_per_million_samples
from engine.gpus import GPUS
from engine.models.tasks import SIZES
from engine.result import Source

_FEW_TIMES = 2
"""From this ratio on, a difference is shown as a multiple instead of a percentage."""

_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Cell:
    """One number of one analysis.

    Attributes:
        value: For the difference; ``None`` where there is none.
        low, high: Its interval, where it has one.
        delta: The difference from the baseline as text; empty where there is none.
        tone: Whether the difference is ``better``, ``worse`` or neither (empty).
    """

    text: str
    sources: tuple[Source, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    delta: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        key: The API's name of the number; empty for a setting, which is text.
        unit: Of the cells' values; empty where they are counts or ratios.
    """

    label: str
    cells: list[Cell]
    key: str = ""
    unit: str = ""

    @property
    def differs(self) -> bool:
        return len({(cell.text, cell.note, cell.sources) for cell in self.cells}) > 1


@dataclass(frozen=True)
class _Figure:
    """How a row of results is computed.

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


def setting_rows(columns: Sequence[Column]) -> list[Row]:
    """A row per setting, with a dash where an analysis does not have it."""
    settings = [
        dict(settings_of(column.analysis.request)) | {"GPU": gpu_of(column.analysis)}
        for column in columns
    ]
    return [
        Row(label, [Cell(each.get(label, UNKNOWN)) for each in settings])
        for label in _in_common_order(settings)
    ]


def answer_rows(columns: Sequence[Column], base: int | None) -> list[Row]:
    """A row per number of the results, each with its difference from the baseline."""
    baseline = next((column for column in columns if column.pk == base), None)
    rows = []
    for figure in _FIGURES:
        held_against = figure.cell(baseline) if baseline else NOTHING
        cells = []
        for column in columns:
            cell = figure.cell(column)
            if baseline and column is not baseline:
                better = figure.better if _same_work(column, baseline) else 0
                cell = _with_delta(cell, held_against, better)
            cells.append(cell)
        if not figure.is_optional or any(cell.value is not None for cell in cells):
            rows.append(Row(figure.label, cells, figure.key, figure.unit))
    return rows


def _same_work(one: Column, other: Column) -> bool:
    """Whether a sample is the same work for both; otherwise neither can be better at it."""
    names = ("model", "config", "task", *SIZES)
    first, second = one.analysis.request, other.analysis.request
    return all(first.get(name) == second.get(name) for name in names)


def _in_common_order(columns: Iterable[dict[str, str]]) -> list[str]:
    """Every label once, each after the one that precedes it where it occurs."""
    order: list[str] = []
    for settings in columns:
        at = 0
        for label in settings:
            if label in order:
                at = order.index(label) + 1
            else:
                order.insert(at, label)
                at += 1
    return order


def _with_delta(cell: Cell, base: Cell, better: int) -> Cell:
    if not cell.value or not base.value:
        return cell
    ratio = cell.value / base.value
    direction = better * ((ratio > 1) - (ratio < 1))
    tone = {1: "better", -1: "worse"}.get(direction, "")
    delta = difference(ratio)
    if _overlap(cell, base):
        delta, tone = f"{delta}; the ranges overlap", ""
    return Cell(**vars(cell) | {"delta": delta, "tone": tone})


def difference(ratio: float) -> str:
    """A ratio to the baseline as text: a percentage, from 2 on a multiple, ``same`` below 0.5%."""
    if ratio >= _FEW_TIMES:
        return times(ratio)
    change = round(100 * (ratio - 1))
    if change == 0:
        return "same"
    return f"+{change}%" if change > 0 else f"{_MINUS}{-change}%"


def _overlap(one: Cell, other: Cell) -> bool:
    ends = (one.low, one.high, other.low, other.high)
    low, high, other_low, other_high = ends
    if low is None or high is None or other_low is None or other_high is None:
        return False
    return low <= other_high and other_low <= high and one.value != other.value


# The numbers


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
    trial = column.recommended
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


def _usd_per_million(column: Column) -> Cell:
    """The cost of a million samples, which compares across GPUs as hours do not."""
    trial, price = column.recommended, _price_per_hour(column)
    if trial is None or not trial.samples_per_second or price is None:
        return NOTHING
    gpus = column.analysis.request.get("world_size") or 1
    cost = usd_per_million_samples(price * gpus, trial.samples_per_second)
    return Cell(usd(cost), (trial.source, Source.ASSUMED), cost)


def _price_per_hour(column: Column) -> float | None:
    """Of one GPU: the result's, else the request's, else the catalogue's."""
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


_FIGURES = (
    _Figure("largest_batch_size", "Largest batch that fits", _largest, better=1),
    _Figure("recommended_batch_size", "Recommended batch", _recommended),
    _Figure("speedup", "Speedup over the current batch", _speedup),
    _Figure(
        "samples_per_second",
        "Samples per second at the recommended batch",
        _samples_per_second,
        better=1,
        unit="samples/s",
    ),
    _Figure(
        "tokens_per_second",
        "Tokens per second at the recommended batch",
        _tokens_per_second,
        better=1,
        unit="tokens/s",
        is_optional=True,
    ),
    _Figure("step_seconds", "Step time at the recommended batch", _step_time, unit="seconds"),
    *(
        _Figure(name, f"{label} at the recommended batch", _memory(name), unit="bytes")
        for name, label in (
            ("peak_allocated_bytes", "Peak allocated"),
            ("peak_reserved_bytes", "Peak reserved"),
            ("device_used_bytes", "Device used"),
        )
    ),
    _Figure(
        "usd_per_million_samples",
        "Cost of a million samples",
        _usd_per_million,
        better=-1,
        unit="USD",
    ),
    _Figure("current_usd_per_run", "Cost per run, current batch", _current_usd_per_run, unit="USD"),
    _Figure(
        "recommended_usd_per_run",
        "Cost per run, recommended batch",
        _of_savings("recommended_usd_per_run", usd),
        unit="USD",
    ),
    _Figure("usd_per_year", "Savings per year", _per_year("usd_per_year", usd), unit="USD"),
    _Figure(
        "gpu_hours_per_year",
        "GPU-hours saved per year",
        _per_year("gpu_hours_per_year", significant),
        unit="GPU-hours",
    ),
    *(
        _Figure(name, label, _of_energy(name), unit=unit, is_optional=True)
        for name, label, unit in (
            ("recommended_kwh_per_run", "GPU energy per run, recommended batch, kWh", "kWh"),
            ("kwh_per_year", "GPU energy saved per year, kWh", "kWh"),
            ("kg_co2e_per_year", "CO2e saved per year, kg", "kg"),
        )
    ),
)
