"""The engine's answers as tables for a terminal. Each number says where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..answer.amounts import Answered, beyond_largest
from ..answer.certificate import measured_on_rows
from ..answer.figures import (
    CO2E_PER_YEAR,
    CURRENT_BATCH,
    CURRENT_COST,
    CURRENT_HEADROOM,
    DEVICE_USED,
    HOURS_PER_YEAR,
    KWH_PER_RUN,
    KWH_PER_YEAR,
    LARGEST_BATCH,
    LARGEST_HEADROOM,
    LONGEST_ROW,
    MEMORY,
    PADDING,
    RECOMMENDED_BATCH,
    RECOMMENDED_COST,
    SPEED,
    SPEEDUP,
    STEP_TIME,
    TOKEN_SPEED,
    USD_PER_YEAR,
    Figure,
)
from ..answer.learning_rate import about_global_batch
from ..answer.offers import Offer, offers_of_script
from ..answer.superlatives import named_batches
from ..answer.worth import Gain, gain_of
from ..core.numbers import share, significant, times, times_range, usd
from ..core.optimizers import Optimizer
from ..core.sizes import gib, gib_number
from ..interface.request import FIELDS
from ..interface.result import AnalysisResult, BatchLengths, Energy, MeasuredOn, Phase, Savings
from ..interface.tokens import Tokens, tokens_of
from ..interface.trial import GpuFacts, Source, Trial
from ..interface.workload import Workload
from ..models.tasks import SIZES
from ..versions.software import format_versions
from . import terminal
from .render_phases import phases_section

_BAR_WIDTH = 20
_RANGES = {
    Source.MEASURED: "middle half",
    Source.PREDICTED: "range",
    Source.COMPUTED: "range",
}


def render_analysis(result: AnalysisResult) -> RenderableType:
    recommended = _trial_of(result, result.recommended_batch_size)
    parts: list[RenderableType] = [
        _settings(result.workload or result.model_name, result.gpu, result.software),
        Text(result.verdict, style="bold green"),
        *_about_the_global_batch(result),
        terminal.section("Key numbers", _key_numbers(result)),
        terminal.section("Trials", _trials(result)),
        terminal.section(
            f"Memory at the peak of a step at batch {recommended.batch_size:,} (recommended)",
            _memory(recommended, result.gpu.total_bytes),
        ),
    ]
    parts += phases_section(result.phases, recommended.batch_size)
    if result.lengths is not None:
        title = f"Lengths in a batch of {result.lengths.batch_size:,}"
        parts.append(terminal.section(title, _lengths(result.lengths)))
    if result.measured_on is not None:
        parts.append(terminal.section("Measured on", _measured_on(result.measured_on)))
    if result.caveats:
        parts.append(terminal.section("About these numbers", terminal.bullets(result.caveats)))
    return Group(*parts)


def _about_the_global_batch(result: AnalysisResult) -> list[RenderableType]:
    """Changes that keep a script's global batch and that raise it; of a model, its batch."""
    if offers := offers_of_script(result):
        title = f"What to change ({result.source})"
        return [terminal.section(title, terminal.bullets(map(_offer, offers)))]
    return [Text(effect)] if (effect := about_global_batch(result)) else []


def _offer(offer: Offer) -> str:
    if offer.why_none:
        return f"{offer.title}: {offer.why_none}"
    gain = "fits"
    if offer.speedup and offer.speedup_low and offer.speedup_high:
        ends = times_range(offer.speedup_low, offer.speedup_high)
        gain = f"{times(offer.speedup)} faster ({ends})"
    return f"{offer.title}: {offer.change}, {gain}. {offer.learning_rate}"


def render_trial(
    trial: Trial,
    workload: Workload | str,
    gpu: GpuFacts,
    measured_on: MeasuredOn | None = None,
    software: Mapping[str, str] = MappingProxyType({}),
    caveats: Sequence[str] = (),
    phases: Sequence[Phase] = (),
) -> RenderableType:
    """One batch size on one GPU: whether it fits, its memory and step time.

    Args:
        trial: Measured or predicted.
        workload: The trained workload; for a script, the name of its factory.
        gpu: The GPU that it is trained on.
        measured_on: Environment of a measured trial, if known.
        software: The versions that it is for, by package.
        caveats: Sentences about what the numbers assume and leave out.
        phases: Peaks of memory by phase, if known.
    """
    fits = "fits" if trial.fits else "does not fit"
    head = f"Batch {trial.batch_size:,} {fits} ({trial.source})."
    figures = figures_table()
    for figure in MEMORY:
        if (size := getattr(trial, figure.name)) is not None:
            figures.add_row(figure.label, figure.text(size), trial.source)
    low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
    if low is not None and high is not None:
        label = f"{DEVICE_USED.label}, range"
        figures.add_row(label, f"{DEVICE_USED.range(low, high)} GiB", trial.source)
    if trial.fits and trial.step_seconds is not None:
        figures.add_row(STEP_TIME.label, STEP_TIME.text(trial.step_seconds), trial.source)
    slowest = trial.step_seconds_high
    if trial.fits and trial.step_seconds_low is not None and slowest is not None:
        ends = f"{STEP_TIME.range(trial.step_seconds_low, slowest)} ms"
        figures.add_row(f"{STEP_TIME.label}, {_RANGES[trial.source]}", ends, trial.source)
    if trial.fits and trial.samples_per_second is not None:
        counted = None if isinstance(workload, str) else tokens_of(workload)
        figures.add_row("Speed", _speeds(trial.samples_per_second, counted), trial.source)
    if trial.alloc_retries is not None:
        figures.add_row("Allocator retries", f"{trial.alloc_retries:,}", trial.source)
    title = "Memory at the peak of a step"
    parts: list[RenderableType] = [
        _settings(workload, gpu, software),
        Text(head, style="bold green" if trial.fits else "bold red"),
        *([Text(_sentence(trial.failure))] if trial.failure else []),
        terminal.section("Numbers" if trial.fits else "What it would need", figures),
        terminal.section(
            title if trial.fits else f"{title}, if it fitted", _memory(trial, gpu.total_bytes)
        ),
    ]
    parts += phases_section(phases, trial.batch_size)
    if measured_on is not None:
        parts.append(terminal.section("Measured on", _measured_on(measured_on)))
    if caveats:
        parts.append(terminal.section("About these numbers", terminal.bullets(caveats)))
    return Group(*parts)


def where_memory_goes(trial: Trial, total_bytes: int) -> list[tuple[str, int]]:
    """Every byte of the device at the peak of a trial, by what it is used for.

    Args:
        trial: Nothing is returned unless its peak allocated is known.
        total_bytes: The device's memory.

    Returns:
        Labels and bytes that add up to ``total_bytes``. The last entry is what is free or, below
        zero, what is missing.
    """
    allocated = trial.peak_allocated_bytes
    if allocated is None:
        return []
    parts = [(name.replace("_", " "), size) for name, size in trial.breakdown.items() if size]
    parts = parts or [("tensors", allocated)]
    used = allocated
    if trial.peak_reserved_bytes is not None:
        parts.append(("cached but unused", trial.peak_reserved_bytes - used))
        used = trial.peak_reserved_bytes
    if trial.device_used_bytes is not None:
        parts.append(("CUDA context and others", trial.device_used_bytes - used))
        used = trial.device_used_bytes
    free = total_bytes - used
    return [*parts, ("free" if free >= 0 else "missing", free)]


def _key_numbers(result: AnalysisResult) -> Table:
    table = figures_table()
    answered = Answered(result)
    _add(table, LARGEST_BATCH, answered, beyond_largest(result))
    _add(table, RECOMMENDED_BATCH, answered)
    if result.safe_batch_size is not None:
        safe = f"{result.safe_batch_size:,}" if result.safe_batch_size else "none"
        table.add_row("Safe batch", safe, result.source)
    if result.global_batch is not None:
        kept = f"{result.global_batch.kept_size:,} samples per optimizer step"
        kept += f", {result.global_batch.gradient_accumulation:,} micro-batches"
        table.add_row("Global batch", kept, "")
    _add(table, CURRENT_BATCH, answered)
    _add(table, CURRENT_HEADROOM, answered)
    _add(table, LARGEST_HEADROOM, answered)
    if result.speedup is not None:
        _add(table, SPEEDUP, answered, _interval(result, result.speedup))
    elif result.current_batch_size is not None:
        fits = _trial_of(result, result.current_batch_size).fits
        why = "its speed is not known" if fits else "the current batch does not fit"
        table.add_row(SPEEDUP.label, f"unknown: {why}", "")
    if result.comparison is not None:
        rounds = len(result.comparison.current_samples_per_second)
        sure = f"{100 * result.comparison.coverage:.0f}% confidence in that range"
        table.add_row("Interleaved runs", f"{rounds} rounds, {sure}", result.source)
    if result.savings is not None:
        _add_savings(table, result.savings)
    return table


def _add(table: Table, figure: Figure, answered: Answered, note: str = "") -> None:
    """Add a number, if the answer has it, with its own note or another one in parentheses."""
    found = figure.of(answered)
    if found is not None:
        said = note or found.note
        text = f"{figure.shown(found)} ({said})" if said else figure.shown(found)
        table.add_row(figure.label, text, ", ".join(found.sources))


def _lengths(lengths: BatchLengths) -> Table:
    table = figures_table()
    sure = f"{share(lengths.probability)} of runs have none longer"
    table.add_row(
        LONGEST_ROW.label, f"{LONGEST_ROW.text(lengths.worst_tokens)} ({sure})", Source.PREDICTED
    )
    table.add_row("Mean row", f"{lengths.mean_tokens:,.0f} tokens", Source.PREDICTED)
    table.add_row(PADDING.label, f"{PADDING.text(lengths.padding)} of all tokens", Source.PREDICTED)
    return table


def _interval(result: AnalysisResult, speedup: float) -> str:
    """The interval of a speedup, and the ratio where its text does not have it."""
    ratio = times(speedup) if gain_of(result) is Gain.NONE else ""
    low, high = result.speedup_low, result.speedup_high
    ends = "" if low is None or high is None else f"range {times_range(low, high)}"
    return ", ".join(filter(None, [ratio, ends]))


def _add_savings(table: Table, savings: Savings) -> None:
    """Add the savings of a speedup: only hours where the price of the device is not known."""
    source = f"{savings.source}, {Source.ASSUMED} use"
    priced = savings.price_per_hour_usd > 0
    saved = "none"
    if savings.gpu_hours_per_year > 0:
        saved = HOURS_PER_YEAR.with_unit(savings.gpu_hours_per_year)
        saved += f", {USD_PER_YEAR.text(savings.usd_per_year)}" if priced else ""
    table.add_row(USD_PER_YEAR.label, saved, source)
    if priced:
        cost = RECOMMENDED_COST.text(savings.recommended_usd_per_run)
        if saved != "none":
            cost = f"{CURRENT_COST.text(savings.current_usd_per_run)} → {cost}"
        table.add_row("Cost per run", cost, source)
    if savings.energy is not None:
        _add_energy(table, savings.energy)
    use = f"{savings.runs_per_year:,g} runs a year of {savings.hours_per_run:,g} h"
    price = f"{usd(savings.price_per_hour_usd)} per GPU-hour" if priced else "no price known"
    table.add_row("Assumed use", f"{use}, {price}", Source.ASSUMED)
    if savings.energy is not None:
        grid = f"{savings.energy.grid_co2e_grams_per_kwh:,g} g CO2e per kWh"
        table.add_row("Assumed grid", grid, Source.ASSUMED)


def _add_energy(table: Table, energy: Energy) -> None:
    """The GPUs' energy of a run and, with a gain, of a year. Power is never measured."""
    source = f"{Source.PREDICTED}, {Source.ASSUMED} use"
    limit = significant(energy.power_limit_watts)
    run = KWH_PER_RUN.with_unit(energy.recommended_kwh_per_run)
    if energy.kwh_per_year:
        run = f"{KWH_PER_RUN.number(energy.current_kwh_per_run)} → {run}"
        low, high = map(KWH_PER_YEAR.number, (energy.kwh_per_year_low, energy.kwh_per_year_high))
        saved = f"{KWH_PER_YEAR.with_unit(energy.kwh_per_year)} a year ({low} to {high}), "
        saved += f"{CO2E_PER_YEAR.with_unit(energy.kg_co2e_per_year)} CO2e"
        table.add_row("Energy saved", saved, source)
    watts = f"{significant(energy.recommended_watts)} of {limit} W per GPU"
    table.add_row("Energy per run", f"{run}, at {watts}", source)


def _trials(result: AnalysisResult) -> RenderableType:
    counted, names = tokens_of(result.workload), named_batches(result)
    table = terminal.table(dense=True)  # up to ten columns in a terminal of 80
    for heading in (
        "batch",
        "fits",
        "peak\nallocated\nGiB",
        "peak\nreserved\nGiB",
        "device\nused\nGiB",
        "step\nms",
        *terminal.speed_headings(counted),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("")
    for trial in sorted(result.trials, key=lambda trial: trial.batch_size):
        style = "" if trial.fits else "red"
        named = ", ".join(names.get(trial.batch_size, []))
        table.add_row(*_trial_row(trial, counted), named, style=style)
    return Group(table, *(Text(note, style="dim") for note in _notes(result.trials)))


def _notes(trials: Sequence[Trial]) -> list[str]:
    """Explanations below the table of trials."""
    notes = []
    if any(not trial.fits and trial.peak_allocated_bytes is not None for trial in trials):
        notes.append("For batches that do not fit, memory is what they would need.")
    notes += [
        f"Batch {trial.batch_size:,} fits, but the caching allocator had to release its cache "
        f"{_times(trial.alloc_retries)}, which slows training down."
        for trial in trials
        if trial.fits and trial.alloc_retries
    ]
    return notes


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _trial_row(trial: Trial, counted: Tokens | None) -> list[str]:
    # A batch that does not fit never runs, so it has no speed, whatever was predicted.
    step, speed = (trial.step_seconds, trial.samples_per_second) if trial.fits else (None, None)
    return [
        f"{trial.batch_size:,}",
        "yes" if trial.fits else "no",
        *(figure.number(getattr(trial, figure.name)) for figure in MEMORY),
        STEP_TIME.number(step),
        *terminal.speeds(speed, counted),
        trial.source,
    ]


def _memory(trial: Trial, total_bytes: int) -> Table:
    table = terminal.table()
    table.add_column("used for", no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("of GPU", justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("source", no_wrap=True)
    for name, size in where_memory_goes(trial, total_bytes):
        table.add_row(
            name,
            gib_number(size),
            share(size / total_bytes),
            "█" * round(_BAR_WIDTH * min(size / total_bytes, 1)),
            trial.source,
            style={"free": "green", "missing": "red"}.get(name, ""),
        )
    table.add_section()
    table.add_row("total", gib_number(total_bytes), share(1))
    return table


def figures_table() -> Table:
    table = terminal.table(show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    table.add_column(style="dim")
    return table


def _settings(workload: Workload | str, gpu: GpuFacts, software: Mapping[str, str]) -> Text:
    memory = gib(gpu.total_bytes)
    # A limited GPU already has its memory in its name.
    where = gpu.name if memory in gpu.name else f"{gpu.name} ({memory})"
    versions = f"\nWith {format_versions(software)}" if software else ""
    return Text(f"{describe(workload)}, on {where}{versions}")


def describe(workload: Workload | str) -> str:
    """Description of a workload; for a script, its factory."""
    if isinstance(workload, str):
        return f"{workload} (script)"
    optimizer = "no" if workload.optimizer is Optimizer.NONE else workload.optimizer
    parts = [workload.preset.display_name, workload.precision, f"{optimizer} optimizer"]
    parts.append(f"{workload.mode} mode")
    for name in SIZES:
        if (size := getattr(workload, name)) is not None:
            parts.append(f"{FIELDS[name].label.lower()} {size:,}")
    return ", ".join(parts)


def _trial_of(result: AnalysisResult, batch_size: int) -> Trial:
    return next(trial for trial in result.trials if trial.batch_size == batch_size)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _speeds(samples_per_second: float, counted: Tokens | None) -> str:
    text = SPEED.with_unit(samples_per_second)
    tokens = counted.per_second(samples_per_second) if counted else None
    return f"{text}, {TOKEN_SPEED.number(tokens)} {counted.unit}/s" if counted and tokens else text


def _measured_on(found: MeasuredOn) -> Table:
    table = terminal.table(show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for label, text in measured_on_rows(found):
        table.add_row(label, text)
    return table
