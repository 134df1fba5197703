"""What the pages of an analysis show: its figures with their sources, its settings, its state."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from analyses.charts import Figure as ChartFigure
from analyses.charts import batch_size_chart, chart_description
from analyses.formatting import (
    UNKNOWN,
    duration,
    exact,
    gib_with_unit,
    percent,
    plain_number,
    significant,
    times,
    usd,
    whole,
)
from analyses.memory_bars import BreakdownRow, MemoryBar, breakdown_rows, memory_bars
from analyses.models import Analysis, Status
from analyses.stored_result import UNREADABLE, read_result, trial_at
from engine.gpus import GPUS, LOCAL
from engine.presets import PRESETS
from engine.result import AnalysisResult, Savings, Source

logger = logging.getLogger(__name__)

LONG_WAIT_SECONDS = 15.0
"""After this long in the queue the page says that no worker seems to be running."""

SOURCE_MEANINGS = {
    Source.MEASURED: "It was read from real training steps on the node's device.",
    Source.PREDICTED: "It was computed from a trace of the training step; nothing ran on the GPU.",
    Source.ASSUMED: "It was entered by a person or comes from the catalogue, such as a price.",
}


@dataclass(frozen=True)
class Figure:
    """One number of a verdict, ready for the page.

    Attributes:
        sources: Where it comes from; two where a measured or predicted ratio meets a price.
        tone: ``good``, ``quiet`` or empty.
    """

    label: str
    value: str
    note: str
    sources: tuple[Source, ...]
    tone: str = ""


@dataclass(frozen=True)
class Verdict:
    """Everything below the headline of an analysis that succeeded."""

    result: AnalysisResult
    key_figures: list[Figure]
    worth: list[Figure]
    bars: list[MemoryBar]
    breakdown: list[BreakdownRow]
    chart: ChartFigure
    chart_description: str


@dataclass(frozen=True)
class State:
    """How long an analysis has taken, in words; the page counts on while ``ticks``.

    Attributes:
        preposition: What stands between the status and the time: ``Failed after 3 s``.
        hint: What to know if it takes unusually long; mostly empty.
    """

    preposition: str
    elapsed_seconds: float
    elapsed: str
    ticks: bool
    hint: str = ""


def verdict_of(analysis: Analysis) -> Verdict | None:
    """The verdict of an analysis; ``None`` while it has no result, or none that can be read."""
    if analysis.result is None:
        return None
    try:
        result = read_result(analysis.result)
    except UNREADABLE:
        logger.warning("the result of analysis %s cannot be read", analysis.pk, exc_info=True)
        return None
    bars = memory_bars(result)
    return Verdict(
        result=result,
        key_figures=key_figures(result),
        worth=worth_figures(result),
        bars=bars,
        breakdown=breakdown_rows(bars),
        chart=batch_size_chart(result),
        chart_description=chart_description(result),
    )


def key_figures(result: AnalysisResult) -> list[Figure]:
    """Largest batch, recommended batch and headroom."""
    next_size = whole(result.next_batch_size)
    return [
        Figure(
            "Largest batch that fits",
            whole(result.largest_batch_size),
            f"{next_size} does not fit"
            if result.next_batch_size_fails
            else f"the search ended here; {next_size} was not tried",
            (result.source,),
        ),
        Figure(
            "Recommended batch",
            whole(result.recommended_batch_size),
            "the smallest within 5 % of the best samples per second",
            (_source_at(result, result.recommended_batch_size),),
            tone="good",
        ),
        _headroom_figure(result),
    ]


def worth_figures(result: AnalysisResult) -> list[Figure]:
    """Speedup, cost per run and yearly savings."""
    savings = result.savings
    if savings:
        return [_speedup_figure(result), _cost_figure(savings), _savings_figure(savings)]
    note = "without a speedup there is nothing to compare"
    nothing = [
        Figure(label, UNKNOWN, note, (), tone="quiet")
        for label in ("Cost per run", "Potential savings per year")
    ]
    return [_speedup_figure(result), *nothing]


def has_gain(result: AnalysisResult) -> bool:
    """Whether the engine found the recommended batch faster beyond its noise."""
    if result.speedup is None or result.savings is None:
        return False
    savings = result.savings
    nothing_to_save = savings.hours_per_run * savings.runs_per_year == 0
    return result.speedup > 1 and (savings.gpu_hours_per_year > 0 or nothing_to_save)


def speedup_in_list(analysis: Analysis) -> str:
    """The speedup of a row in a list, told apart from noise as on the analysis's own page."""
    if analysis.speedup is None:
        return UNKNOWN
    assumed, price = analysis.request, analysis.request.get("price_per_hour_usd")
    nothing_to_save = 0 in (assumed["hours_per_run"], assumed["runs_per_year"], price)
    gain = analysis.speedup > 1 and ((analysis.usd_per_year or 0) > 0 or nothing_to_save)
    return times(analysis.speedup) if gain else "no gain"


def settings_of(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The question as label and value, in the order of the form."""
    preset = PRESETS.get(request["model"])
    price = request.get("price_per_hour_usd")
    limit = request.get("memory_limit_bytes")
    rows = [
        ("Model", model_name(request["model"])),
        ("Hub id", preset.hub_id if preset else ""),
        ("Task", preset.task.replace("-", " ") if preset else ""),
        ("GPU", gpu_name(request["gpu"])),
        ("Memory limit", gib_with_unit(limit) if limit else ""),
        ("Precision", request["precision"]),
        ("Optimizer", request["optimizer"]),
        ("Mode", request["mode"]),
        ("Sequence length", _with_unit(request.get("sequence_length"), "tokens")),
        ("Image size", _with_unit(request.get("image_size"), "pixels per side")),
        ("Current batch", _with_unit(request["current_batch_size"], "samples")),
        ("Batch multiple", whole(request["batch_multiple"])),
        ("Hours per run (assumed)", exact(request["hours_per_run"])),
        ("Runs per year (assumed)", exact(request["runs_per_year"])),
        ("Price per GPU-hour (assumed)", "the catalogue's" if price is None else usd(price)),
    ]
    return [(label, value) for label, value in rows if value]


def state_of(analysis: Analysis, now: datetime) -> State:
    """Where the analysis stands at ``now``, in words."""
    begun = analysis.started_at or analysis.queued_at
    if analysis.is_final:
        seconds = ((analysis.finished_at or now) - begun).total_seconds()
        preposition = "in" if analysis.status == Status.SUCCEEDED else "after"
        return State(preposition, seconds, duration(seconds), ticks=False)
    seconds = (now - begun).total_seconds()
    hint = ""
    if analysis.status == Status.QUEUED and seconds > LONG_WAIT_SECONDS:
        hint = "No worker has taken it yet. It starts by itself as soon as one is free."
    return State("for", seconds, duration(seconds), ticks=True, hint=hint)


def model_name(name: str) -> str:
    """A model as people know it; a name that is no preset stays as it is."""
    return PRESETS[name].display_name if name in PRESETS else name


def gpu_name(name: str) -> str:
    """A GPU as its vendor writes it; a name that is not in the catalogue stays as it is."""
    if name == LOCAL:
        return "this lab's node"
    return GPUS[name].display_name if name in GPUS else name


def command_of(request: Mapping[str, Any]) -> str:
    """The command line that asks the engine the same question."""
    words = ["python", "-m", "engine", "analyze", str(request["model"])]
    for name, flag in _FLAGS.items():
        value = request.get(name)
        if value is not None:
            words += [flag, plain_number(value) if isinstance(value, float) else str(value)]
    return shlex.join(words)


_FLAGS = {
    "gpu": "--gpu",
    "memory_limit_bytes": "--memory-limit",
    "precision": "--precision",
    "optimizer": "--optimizer",
    "mode": "--mode",
    "sequence_length": "--sequence-length",
    "image_size": "--image-size",
    "current_batch_size": "--current-batch-size",
    "batch_multiple": "--batch-multiple",
    "hours_per_run": "--hours-per-run",
    "runs_per_year": "--runs-per-year",
    "price_per_hour_usd": "--price-per-hour",
}


def _with_unit(value: int | None, unit: str) -> str:
    return "" if value is None else f"{whole(value)} {unit}"


def _source_at(result: AnalysisResult, batch_size: int) -> Source:
    trial = trial_at(result, batch_size)
    return trial.source if trial else result.source


def _headroom_figure(result: AnalysisResult) -> Figure:
    current, largest = result.current_headroom_bytes, result.largest_headroom_bytes
    source = _source_at(result, result.current_batch_size)
    at_largest = f"at the largest batch {gib_with_unit(largest)}"
    if current is None:
        note = f"batch {whole(result.current_batch_size)} does not fit; {at_largest}"
        return Figure("Headroom at your batch", "none", note, (source,))
    share = percent(current, result.gpu.total_bytes)
    note = f"{share} of the GPU unused at batch {whole(result.current_batch_size)}; {at_largest}"
    return Figure("Headroom at your batch", gib_with_unit(current), note, (source,))


def _speedup_figure(result: AnalysisResult) -> Figure:
    current, recommended = whole(result.current_batch_size), whole(result.recommended_batch_size)
    source = result.savings.source if result.savings else result.source
    if result.current_headroom_bytes is None:
        note = f"batch {current} does not fit, so there is no speed to compare with"
        return Figure("Speedup", "none", note, (source,), tone="quiet")
    if result.speedup is None:
        return Figure("Speedup", "not known", "no step times", (source,), tone="quiet")
    if not has_gain(result):
        note = f"{times(result.speedup)} from batch {current} to {recommended}: inside the noise"
        if current == recommended:
            note = f"batch {current} is already the recommended one"
        elif result.speedup < 1:
            note = f"batch {recommended} saves memory, not time: {times(result.speedup)} the speed"
        return Figure("Speedup", "no gain", note, (source,), tone="quiet")
    note = f"samples per second, batch {recommended} against {current}"
    return Figure("Speedup", times(result.speedup), note, (source,), tone="good")


def _cost_figure(savings: Savings) -> Figure:
    current, recommended = savings.current_usd_per_run, savings.recommended_usd_per_run
    price = f"at {usd(savings.price_per_hour_usd)} per GPU-hour"
    hours = f"{exact(savings.hours_per_run)} GPU-hours per run today"
    value = usd(current) if current == recommended else f"{usd(current)} → {usd(recommended)}"
    return Figure("Cost per run", value, f"{hours}, {price}", (savings.source, Source.ASSUMED))


def _savings_figure(savings: Savings) -> Figure:
    runs = f"{exact(savings.runs_per_year)} runs per year"
    return Figure(
        "Potential savings per year",
        usd(savings.usd_per_year),
        f"{significant(savings.gpu_hours_per_year)} GPU-hours, over {runs}",
        (savings.source, Source.ASSUMED),
        tone="good" if savings.usd_per_year > 0 else "quiet",
    )
