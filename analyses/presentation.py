"""What the pages of an analysis show: its verdict, its state, and what it ran with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from analyses.charts.batch_size import batch_size_chart, chart_description
from analyses.charts.breakdown import (
    breakdown_chart,
    breakdown_description,
    breakdown_source,
)
from analyses.charts.memory_bars import (
    BreakdownRow,
    MemoryBar,
    breakdown_rows,
    memory_bars,
)
from analyses.charts.parts import PlotlyDict
from analyses.charts.timeline import timeline_chart, timeline_description, timeline_note
from analyses.figures import Figure, key_figures
from analyses.formatting import duration, whole
from analyses.models import Analysis, Status
from analyses.stored_result import result_of, source_at
from engine.answer.measured_on import measured_on_in_words
from engine.result import AnalysisResult, Source

LONG_WAIT_SECONDS = 15.0
"""After this long in the queue the page says that no worker seems to be running."""

_LIBRARIES = ("torch", "transformers", "peft")
_ENGINE_DIGITS = 12
"""Of the engine's fingerprint: enough to tell its versions in one lab apart."""


@dataclass(frozen=True)
class Verdict:
    """Everything below the headline of an analysis that succeeded.

    Attributes:
        global_batch: How the global batch is kept, in a sentence; empty if none was asked for.
        breakdown_chart: ``None`` where memory by category is known of one batch size at most.
        timeline: ``None`` where memory along the step is not known, as in older results.
    """

    result: AnalysisResult
    key_figures: list[Figure]
    global_batch: str
    bars: list[MemoryBar]
    breakdown: list[BreakdownRow]
    chart: PlotlyDict
    chart_description: str
    breakdown_chart: PlotlyDict | None
    breakdown_description: str
    breakdown_source: Source
    timeline: PlotlyDict | None
    timeline_description: str
    timeline_note: str
    timeline_source: Source


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
    result = result_of(analysis)
    if result is None:
        return None
    bars = memory_bars(result)
    return Verdict(
        result=result,
        key_figures=key_figures(result),
        global_batch=global_batch_advice(result),
        bars=bars,
        breakdown=breakdown_rows(bars),
        chart=batch_size_chart(result),
        chart_description=chart_description(result),
        breakdown_chart=breakdown_chart(result),
        breakdown_description=breakdown_description(result),
        breakdown_source=breakdown_source(result),
        timeline=timeline_chart(result) if result.timeline else None,
        timeline_description=timeline_description(result),
        timeline_note=timeline_note(result),
        timeline_source=source_at(result, result.recommended_batch_size),
    )


def global_batch_advice(result: AnalysisResult) -> str:
    """How the user's global batch is kept at the recommended batch."""
    kept = result.global_batch
    if kept is None:
        return ""
    factors = [f"{whole(kept.gradient_accumulation)} micro-batches of"]
    if kept.gradient_accumulation == 1:
        factors = ["one batch of"]
    factors.append(whole(result.recommended_batch_size))
    gpus = result.workload.world_size if result.workload else 1
    on_gpus = f" on each of {gpus} GPUs" if gpus > 1 else ""
    made = (
        f"Take {' '.join(factors)}{on_gpus} to one optimizer step: {whole(kept.kept_size)} samples"
    )
    if kept.kept_size != kept.size:
        made += f", since no allowed batch divides {whole(kept.size)} evenly"
    return f"{made}."


def environment_rows(analysis: Analysis, verdict: Verdict | None) -> list[tuple[str, str]]:
    """What it ran on and with, as label and value; of older analyses only what is known."""
    stored = analysis.environment
    measured_on = verdict and verdict.result.measured_on
    libraries = [f"{name} {stored[name]}" for name in _LIBRARIES if name in stored]
    rows = [("Node", stored.get("node") or analysis.node)]
    rows += measured_on_in_words(measured_on) if measured_on else []
    rows += [
        ("Libraries", "" if measured_on else ", ".join(libraries)),
        ("Python", stored.get("python", "")),
        ("Engine", stored.get("engine", "")[:_ENGINE_DIGITS]),
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
