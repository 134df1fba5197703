"""An answer as the pages of an analysis and of a share link show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analyses.charts.batch_size import batch_size_chart, chart_description, knee_of
from analyses.charts.breakdown import (
    BreakdownRow,
    MemoryBar,
    breakdown_chart,
    breakdown_description,
    breakdown_rows,
    breakdown_source,
    memory_bars,
)
from analyses.charts.layout import PlotlyDict
from analyses.charts.timeline import timeline_chart, timeline_description, timeline_note
from analyses.formatting import SOURCE_MEANINGS, Figure, gib_with_unit, percent, whole
from analyses.models import Analysis
from analyses.pages.settings import command_of, settings_of
from analyses.stored_result import result_of, source_at, tokens_in, trial_at
from engine.answer.certificate import measured_on_rows
from engine.result import AnalysisResult, Source
from engine.software import caveat, in_words

_LIBRARIES = ("torch", "transformers", "peft")
_ENGINE_DIGITS = 12
"""Of the engine's fingerprint: enough to tell its versions in one lab apart."""


@dataclass(frozen=True)
class Verdict:
    """Everything below the headline of an analysis that succeeded.

    Attributes:
        software: The versions it is for, in words; empty if an older version did not store them.
        software_warning: Why these are not the versions that the member trains with; empty if they
            are, or none were given.
        global_batch: How the global batch is kept, in a sentence; empty if none was set.
        breakdown_chart: ``None`` where memory by category is known at one batch size at most.
        timeline: ``None`` where memory along the step is not known, as in older results.
    """

    result: AnalysisResult
    software: str
    software_warning: str
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


def verdict_of(analysis: Analysis) -> Verdict | None:
    """The verdict of an analysis; ``None`` while it has no result, or none that can be read."""
    result = result_of(analysis)
    if result is None:
        return None
    bars = memory_bars(result)
    return Verdict(
        result=result,
        software=in_words(result.software),
        software_warning=_software_warning(result),
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


def _software_warning(result: AnalysisResult) -> str:
    wanted = result.workload.software if result.workload and result.software else ""
    return " ".join(caveat(wanted, result.software))


def answer_parts(analysis: Analysis, verdict: Verdict | None) -> dict[str, Any]:
    """The template variables that a share link shows too: no names, no log, no nodes."""
    trials = list(analysis.trials.all())
    return {
        "verdict": verdict,
        # In the order they ran while one watches; by size, around the limit, once all are in.
        "trials": sorted(trials, key=lambda trial: trial.batch_size) if verdict else trials,
        "tokens": tokens_in(analysis),
        "has_ranges": any(
            trial.device_used_low_bytes is not None or trial.step_seconds_low is not None
            for trial in trials
        ),
        "settings": settings_of(analysis.request, analysis.assumed_by),
        "command": command_of(analysis.request),
        "source_meanings": SOURCE_MEANINGS,
    }


def global_batch_advice(result: AnalysisResult) -> str:
    """How to keep the user's global batch at the recommended batch."""
    kept = result.global_batch
    if kept is None:
        return ""
    count, size = kept.gradient_accumulation, whole(result.recommended_batch_size)
    batches = f"one batch of {size}" if count == 1 else f"{whole(count)} micro-batches of {size}"
    gpus = result.workload.world_size if result.workload else 1
    on_gpus = f" on each of {gpus} GPUs" if gpus > 1 else ""
    advice = f"Use {batches}{on_gpus} per optimizer step: {whole(kept.kept_size)} samples"
    if kept.kept_size != kept.size:
        advice += f", because no allowed batch divides {whole(kept.size)} evenly"
    return f"{advice}."


def environment_rows(analysis: Analysis, verdict: Verdict | None) -> list[tuple[str, str]]:
    """Where and with what it ran, as label and value; what an older analysis lacks is left out."""
    stored = analysis.environment
    measured_on = verdict and verdict.result.measured_on
    used = verdict.result.software if verdict else {}
    used = used or {name: stored[name] for name in _LIBRARIES if name in stored}
    rows = [("Node", stored.get("node") or analysis.node)]
    rows += measured_on_rows(measured_on) if measured_on else []
    rows += [
        ("Libraries", "" if measured_on else in_words(used)),
        ("Python", stored.get("python", "")),
        ("Engine", stored.get("engine", "")[:_ENGINE_DIGITS]),
    ]
    return [(label, value) for label, value in rows if value]


def key_figures(result: AnalysisResult) -> list[Figure]:
    """Largest batch, recommended batch and free memory."""
    largest, recommended = result.largest_batch_size, result.recommended_batch_size
    return [
        Figure("Largest batch that fits", whole(largest), _limit_note(result), (result.source,)),
        Figure(
            "Recommended batch",
            whole(recommended),
            _recommendation_note(result),
            (source_at(result, recommended),),
            tone="good",
        ),
        _headroom_figure(result),
    ]


def _recommendation_note(result: AnalysisResult) -> str:
    """Why this batch: fast enough, or as fast as memory and the global batch allow."""
    knee = knee_of(result)
    if knee is None or knee.is_enough:
        return "smallest batch within 5% of top throughput"
    bounds = "memory and the global batch allow" if result.global_batch else "memory safely allows"
    return f"as fast as {bounds}; a larger batch would be more than 5% faster"


def _limit_note(result: AnalysisResult) -> str:
    next_size = whole(result.next_batch_size)
    if result.next_batch_size_fails:
        note = f"{next_size} runs out of memory"
    else:
        note = f"the search ended here; {next_size} was not tried"
    safe = result.safe_batch_size
    if safe is None or safe == result.largest_batch_size:
        return note
    if safe == 0:
        return f"{note}. No batch is certain to fit at the high end of the prediction."
    return f"{note}. {whole(safe)} is safe even {_high_end(result)}."


def _high_end(result: AnalysisResult) -> str:
    """How far off the prediction may be, such as ``if the prediction is 6% low``."""
    limit = trial_at(result, result.largest_batch_size)
    used, high = (limit.device_used_bytes, limit.device_used_high_bytes) if limit else (None, None)
    if not used or not high:
        return "at the high end of the prediction"
    return f"if the prediction is {percent(high - used, used)} low"


def _headroom_figure(result: AnalysisResult) -> Figure:
    size, headroom = whole(result.current_batch_size), result.current_headroom_bytes
    source = source_at(result, result.current_batch_size)
    label = f"Free memory at batch {size}"
    largest = whole(result.largest_batch_size)
    at_largest = f"{gib_with_unit(result.largest_headroom_bytes)} at batch {largest}"
    if headroom is None:
        return Figure(label, "none", f"batch {size} does not fit; {at_largest}", (source,))
    share = percent(headroom, result.gpu.total_bytes)
    return Figure(label, gib_with_unit(headroom), f"{share} of the GPU ({at_largest})", (source,))
