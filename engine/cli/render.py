"""The engine's answers as rich tables for a terminal. Each figure says where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.answer.measured_on import measured_on_in_words
from engine.cli import tables
from engine.gpus import GIB
from engine.result import AnalysisResult, GpuFacts, MeasuredOn, Savings, Source, Trial
from engine.workload import Optimizer, Workload

if TYPE_CHECKING:
    from engine.validation.backward import BackwardCheck  # loads torch

_NOT_KNOWN = "-"
_BAR_WIDTH = 20
_RANGE_OF_TIMES = {
    Source.MEASURED: "Step time, middle half",
    Source.PREDICTED: "Step time, range",
}


def render_analysis(result: AnalysisResult) -> RenderableType:
    """The answer to an analysis: verdict, key figures, trials, memory, caveats."""
    recommended = _trial_of(result, result.recommended_batch_size)
    parts: list[RenderableType] = [
        _question(result.workload or result.model_name, result.gpu),
        Text(result.verdict, style="bold green"),
        tables.section("Key figures", _key_figures(result)),
        tables.section("Trials", _trials(result)),
        tables.section(
            f"Memory at the peak of a step at batch {recommended.batch_size:,} (recommended)",
            _memory(recommended, result.gpu.total_bytes),
        ),
    ]
    if result.measured_on is not None:
        parts.append(tables.section("Measured on", _measured_on(result.measured_on)))
    if result.caveats:
        parts.append(tables.section("To know about these figures", tables.bullets(result.caveats)))
    return Group(*parts)


def render_trial(
    trial: Trial, workload: Workload | str, gpu: GpuFacts, measured_on: MeasuredOn | None = None
) -> RenderableType:
    """One batch size on one GPU: whether it fits, its memory figures and step time.

    Args:
        trial: What was found.
        workload: What is trained; of a person's own code, its factory.
        gpu: On what.
        measured_on: What a measured trial ran on, if that is known.
    """
    fits = "fits" if trial.fits else "does not fit"
    head = f"Batch {trial.batch_size:,} {fits} ({trial.source})."
    figures = _figures()
    for name, size in (
        ("Peak allocated", trial.peak_allocated_bytes),
        ("Peak reserved", trial.peak_reserved_bytes),
        ("Device used", trial.device_used_bytes),
    ):
        if size is not None:
            figures.add_row(name, _gib(size), trial.source)
    low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
    if low is not None and high is not None:
        figures.add_row("Device used, range", f"{low / GIB:.2f} to {_gib(high)}", trial.source)
    if trial.fits and trial.step_seconds is not None:
        figures.add_row("Step time", f"{_milliseconds(trial.step_seconds)} ms", trial.source)
    slowest = trial.step_seconds_high
    if trial.fits and trial.step_seconds_low is not None and slowest is not None:
        times = f"{_milliseconds(trial.step_seconds_low)} to {_milliseconds(slowest)} ms"
        figures.add_row(_RANGE_OF_TIMES[trial.source], times, trial.source)
    if trial.fits and trial.samples_per_second is not None:
        figures.add_row("Speed", f"{_speed(trial.samples_per_second)} samples/s", trial.source)
    if trial.alloc_retries is not None:
        figures.add_row("Allocator retries", f"{trial.alloc_retries:,}", trial.source)
    title = "Memory at the peak of a step"
    parts: list[RenderableType] = [
        _question(workload, gpu),
        Text(head, style="bold green" if trial.fits else "bold red"),
        *([Text(_sentence(trial.failure))] if trial.failure else []),
        tables.section("Figures" if trial.fits else "Figures: what it would need", figures),
        tables.section(
            title if trial.fits else f"{title}, if it fitted", _memory(trial, gpu.total_bytes)
        ),
    ]
    if measured_on is not None:
        parts.append(tables.section("Measured on", _measured_on(measured_on)))
    return Group(*parts)


def render_backward(check: BackwardCheck, workload: Workload, where: str) -> RenderableType:
    """Memory of the forward pass alone against that of the whole training step.

    Args:
        check: What was found.
        workload: What is trained.
        where: The device's name as people know it.
    """
    figures = _figures()
    figures.add_row("Forward pass alone", _gib(check.forward_bytes), check.source)
    figures.add_row("Whole training step", _gib(check.training_bytes), check.source)
    figures.add_row("Ratio", f"{check.ratio:.2f}", check.source)
    return Group(
        Text(f"{_describe(workload)}, on {where}"),
        Text(check.verdict, style="bold green" if check.passed else "bold red"),
        tables.section(f"Peak allocated at batch {check.batch_size:,}", figures),
    )


def where_memory_goes(trial: Trial, total_bytes: int) -> list[tuple[str, int]]:
    """Every byte of the device at the peak of a trial, by what holds it.

    Args:
        trial: With its peak allocated known, or else there is nothing to tell.
        total_bytes: The device's memory.

    Returns:
        Labels and bytes that add up to ``total_bytes``. The last is what is free, or, below zero,
        what is missing.
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
        parts.append(("CUDA context and libraries", trial.device_used_bytes - used))
        used = trial.device_used_bytes
    free = total_bytes - used
    return [*parts, ("free" if free >= 0 else "missing", free)]


def _key_figures(result: AnalysisResult) -> Table:
    table = _figures()
    next_one = f"{result.next_batch_size:,}"
    fails = f"{next_one} does not fit" if result.next_batch_size_fails else "no larger one is tried"
    table.add_row("Largest batch", f"{result.largest_batch_size:,} ({fails})", result.source)
    table.add_row("Recommended batch", f"{result.recommended_batch_size:,}", result.source)
    if result.safe_batch_size is not None:
        safe = f"{result.safe_batch_size:,}" if result.safe_batch_size else "none"
        table.add_row("Fits even at the high end", safe, result.source)
    if result.global_batch is not None:
        kept = f"{result.global_batch.kept_size:,} samples per optimizer step"
        kept += f", {result.global_batch.gradient_accumulation:,} micro-batches"
        table.add_row("Global batch", kept, "")
    current = _trial_of(result, result.current_batch_size)
    fits = "" if current.fits else " (does not fit)"
    table.add_row("Current batch", f"{result.current_batch_size:,}{fits}", current.source)
    for name, batch_size, headroom in (
        ("Headroom, current batch", result.current_batch_size, result.current_headroom_bytes),
        ("Headroom, largest batch", result.largest_batch_size, result.largest_headroom_bytes),
    ):
        if headroom is not None:
            share = f"{_gib(headroom)} ({_percent(headroom, result.gpu.total_bytes)})"
            table.add_row(name, share, _trial_of(result, batch_size).source)
    if result.speedup is None:
        why = "the current batch does not fit" if not current.fits else "its speed is not known"
        table.add_row("Speedup", f"none to give: {why}", "")
    else:
        table.add_row("Speedup", _speedup(result, result.speedup), result.source)
    if result.comparison is not None:
        rounds = len(result.comparison.current_samples_per_second)
        sure = f"true speedup in that range with {100 * result.comparison.coverage:.0f} %"
        table.add_row("Compared in turn", f"{rounds} rounds; {sure}", result.source)
    if result.savings is not None:
        _add_savings(table, result.savings)
    return table


def _speedup(result: AnalysisResult, speedup: float) -> str:
    said = f"{speedup:.2f} times the current speed"
    if result.speedup_low is None or result.speedup_high is None:
        return said
    said += f", {result.speedup_low:.2f} to {result.speedup_high:.2f}"
    return said if result.speedup_low > 1 else f"{said}: no gain"


def _add_savings(table: Table, savings: Savings) -> None:
    """What the speedup is worth. A device without a known price counts in hours alone."""
    source = f"{savings.source}, {Source.ASSUMED} use"
    priced = savings.price_per_hour_usd > 0
    saved = "none"
    if savings.gpu_hours_per_year > 0:
        saved = f"{savings.gpu_hours_per_year:,.0f} GPU-hours a year"
        saved += f", {savings.usd_per_year:,.0f} USD" if priced else ""
    table.add_row("Potential savings", saved, source)
    if priced:
        cost = f"{savings.recommended_usd_per_run:,.2f} USD"
        if saved != "none":
            cost += f", now {savings.current_usd_per_run:,.2f} USD"
        table.add_row("Cost of a run", cost, source)
    use = f"{savings.runs_per_year:,g} runs a year of {savings.hours_per_run:,g} h"
    price = f"{savings.price_per_hour_usd:,.2f} USD per GPU-hour" if priced else "no price known"
    table.add_row("Assumed use", f"{use}, {price}", Source.ASSUMED)


def _trials(result: AnalysisResult) -> RenderableType:
    table = tables.table(dense=True)  # nine columns in a terminal of 80
    for heading in (
        "batch",
        "fits",
        "peak\nallocated\nGiB",
        "peak\nreserved\nGiB",
        "device\nused\nGiB",
        "step\nms",
        "samples\nper s",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("")
    for trial in sorted(result.trials, key=lambda trial: trial.batch_size):
        table.add_row(*_trial_row(trial), _role(trial, result), style="" if trial.fits else "red")
    return Group(table, *(Text(note, style="dim") for note in _notes(result.trials)))


def _notes(trials: Sequence[Trial]) -> list[str]:
    """What the table of trials does not say by itself."""
    notes = []
    if any(not trial.fits and trial.peak_allocated_bytes is not None for trial in trials):
        notes.append("Where a batch does not fit, memory is what it would need.")
    slowed = [trial for trial in trials if trial.fits and trial.alloc_retries]
    notes += [
        f"Batch {trial.batch_size:,} fits, but the caching allocator had to give its cache back "
        f"{trial.alloc_retries:,} times, which slows it down."
        for trial in slowed
    ]
    return notes


def _trial_row(trial: Trial) -> list[str]:
    # What does not fit never runs, so it has no speed, whatever was predicted for it.
    timed = trial if trial.fits else None
    return [
        f"{trial.batch_size:,}",
        "yes" if trial.fits else "no",
        *(
            _NOT_KNOWN if size is None else f"{size / GIB:.2f}"
            for size in (
                trial.peak_allocated_bytes,
                trial.peak_reserved_bytes,
                trial.device_used_bytes,
            )
        ),
        _milliseconds(timed.step_seconds) if timed and timed.step_seconds else _NOT_KNOWN,
        _speed(timed.samples_per_second) if timed and timed.samples_per_second else _NOT_KNOWN,
        trial.source,
    ]


def _role(trial: Trial, result: AnalysisResult) -> str:
    roles = {
        "current": result.current_batch_size,
        "recommended": result.recommended_batch_size,
        "largest": result.largest_batch_size,
    }
    return ", ".join(role for role, batch_size in roles.items() if batch_size == trial.batch_size)


def _memory(trial: Trial, total_bytes: int) -> Table:
    table = tables.table()
    table.add_column("held by", no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("% of all", justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("source", no_wrap=True)
    for name, size in where_memory_goes(trial, total_bytes):
        table.add_row(
            name,
            _at_least(size / GIB, 2),
            _at_least(100 * size / total_bytes, 1),
            "█" * round(_BAR_WIDTH * min(size / total_bytes, 1)),
            trial.source,
            style={"free": "green", "missing": "red"}.get(name, ""),
        )
    table.add_section()
    table.add_row("all of the memory", f"{total_bytes / GIB:.2f}", "100.0")
    return table


def _figures() -> Table:
    table = tables.table(show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    table.add_column(style="dim")
    return table


def _question(workload: Workload | str, gpu: GpuFacts) -> Text:
    memory = _gib(gpu.total_bytes)
    # A limited GPU already has its memory in its name.
    where = gpu.name if memory in gpu.name else f"{gpu.name} ({memory})"
    return Text(f"{_describe(workload)}, on {where}")


def _describe(workload: Workload | str) -> str:
    """What is trained and how; of a person's own code, its factory."""
    if isinstance(workload, str):
        return f"{workload} (own code)"
    optimizer = "no" if workload.optimizer is Optimizer.NONE else workload.optimizer
    parts = [workload.preset.display_name, workload.precision, f"{optimizer} optimizer"]
    parts.append(f"{workload.mode} mode")
    if workload.sequence_length is not None:
        parts.append(f"sequence length {workload.sequence_length:,}")
    if workload.image_size is not None:
        parts.append(f"image size {workload.image_size:,}")
    return ", ".join(parts)


def _trial_of(result: AnalysisResult, batch_size: int) -> Trial:
    return next(trial for trial in result.trials if trial.batch_size == batch_size)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"


def _at_least(number: float, decimals: int) -> str:
    """Rounded, but never to a zero that hides something."""
    smallest = 10**-decimals
    if 0 < number < smallest / 2:
        return f"< {smallest}"
    return f"{number:,.{decimals}f}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.{0 if seconds >= 1 else 1}f}"


def _speed(samples_per_second: float) -> str:
    """Samples per second; a decimal where a slow device would otherwise show a bare digit."""
    return f"{samples_per_second:,.{0 if samples_per_second >= 100 else 1}f}"


def _measured_on(found: MeasuredOn) -> Table:
    table = tables.table(show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for label, said in measured_on_in_words(found):
        table.add_row(label, said)
    return table
