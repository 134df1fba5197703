"""An answer as the pages of an analysis and of a share link show it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from analyses.charts.breakdown import BreakdownRow, MemoryBar, breakdown_rows, memory_bars
from analyses.charts.by_batch import picture_of
from analyses.charts.layout import PlotlyDict
from analyses.charts.picture import Picture
from analyses.charts.timeline import timeline_chart, timeline_description, timeline_note
from analyses.figures.answered import answered
from analyses.figures.settings import asked_fields, command_of, defaults_taken, settings_of
from analyses.models import Analysis
from analyses.pages.analysis.decision import Decision, decision_of
from analyses.pages.analysis.first_screen import FirstScreen, first_screen
from analyses.pages.analysis.text_answer import text_answer_of
from analyses.results.recipes import recipe_of
from analyses.results.stored import result_of, tokens_in, tried_batch
from engine.answer.amounts import source_at
from engine.answer.certificate import measured_on_rows
from engine.answer.phases import about_phases
from engine.core.choices import Rollout
from engine.core.numbers import whole
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source
from engine.versions.software import caveat, format_versions

_LIBRARIES = ("torch", "transformers", "peft")
_ENGINE_DIGITS = 12
"""Shown digits of the engine's fingerprint, enough to distinguish its versions in one lab."""


@dataclass(frozen=True)
class ShownAnswer:
    """The answer of an analysis that succeeded.

    Attributes:
        decision: The top of the page.
        first: The bars and cards under it.
        software: The versions it is for, as text; empty if an older version did not store them.
        software_warning: Why these are not the versions that the member trains with; empty if they
            are, or none were given.
        global_batch: Advice to keep the global batch, in a sentence; empty if none was set.
        picture: ``None`` where no memory is known.
        phases: Sentences on which phase of a run needs the most; empty where that is not known.
        timeline: ``None`` where memory along the step is not known, as in older results.
    """

    result: AnalysisResult
    decision: Decision
    first: FirstScreen
    software: str
    software_warning: str
    global_batch: str
    picture: Picture | None
    bars: list[MemoryBar]
    breakdown: list[BreakdownRow]
    phases: list[str]
    timeline: PlotlyDict | None
    timeline_description: str
    timeline_note: str
    timeline_source: Source


def verdict_of(
    analysis: Analysis, instead: AnalysisResult | None = None, *, may_report: bool = False
) -> ShownAnswer | None:
    """The verdict of an analysis; ``None`` while it has no result, or none that can be read.

    Args:
        analysis: An analysis with its stored result.
        instead: A result to show instead of it, such as that of other moves.
        may_report: Whether the reader may report runs to it, as its lines then do.
    """
    result = instead or result_of(analysis)
    if result is None:
        return None
    bars, shown = memory_bars(result), answered(analysis, result)
    if instead is not None:
        shown = replace(shown, is_adopted=False)  # which is what is stored
    return ShownAnswer(
        result=result,
        decision=decision_of(result, asked_fields(analysis), analysis.pk if may_report else None),
        first=first_screen(shown, bars),
        software=_software(result),
        software_warning=_software_warning(result),
        global_batch=global_batch_advice(result),
        picture=picture_of(shown),
        bars=bars,
        breakdown=breakdown_rows(bars, beside_vllm=_is_beside_vllm(result)),
        phases=about_phases(result.phases, result.recommended_batch_size),
        timeline=timeline_chart(result) if result.timeline else None,
        timeline_description=timeline_description(result),
        timeline_note=timeline_note(result),
        timeline_source=source_at(result, result.recommended_batch_size),
    )


def _is_beside_vllm(result: AnalysisResult) -> bool:
    return result.workload is not None and result.workload.rollout is Rollout.VLLM


def _software(result: AnalysisResult) -> str:
    """The versions that it is for; of a prediction without the build that happened to trace it."""
    if result.source is Source.MEASURED:
        return format_versions(result.software)
    return format_versions(
        {name: version.split("+")[0] for name, version in result.software.items()}
    )


def _software_warning(result: AnalysisResult) -> str:
    wanted = result.workload.software if result.workload and result.software else ""
    return " ".join(caveat(wanted, result.software))


def answer_parts(analysis: Analysis, verdict: ShownAnswer | None) -> dict[str, Any]:
    """The template variables that a share link shows too: no names, no log, no nodes."""
    texts = text_answer_of(analysis) if verdict is None else None
    shown = verdict or texts
    rows = analysis.trials.all()
    trials = verdict.result.trials if verdict else [tried_batch(row) for row in rows]
    return {
        "verdict": verdict,
        "texts": texts,
        "page_source": shown.result.source if shown else None,
        # In the order they ran while one watches; by size, around the limit, once all are in.
        "trials": sorted(trials, key=lambda trial: trial.batch_size) if verdict else trials,
        "tokens": tokens_in(analysis),
        "has_ranges": any(
            trial.device_used_low_bytes is not None or trial.step_seconds_low is not None
            for trial in trials
        ),
        "settings": settings_of(analysis.request, analysis.assumed_by),
        "defaults_taken": defaults_taken(analysis.request, analysis.assumed_by),
        "command": command_of(asked_fields(analysis)),
        "recipe": recipe_of(analysis.recipe),
        "is_program": bool(analysis.program_hash),
    }


def global_batch_advice(result: AnalysisResult) -> str:
    """Advice to keep the user's global batch at the recommended batch; empty without one."""
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


def environment_rows(analysis: Analysis, verdict: ShownAnswer | None) -> list[tuple[str, str]]:
    """The machine and software it ran with, as label and value; an older analysis lacks some."""
    stored = analysis.environment
    measured_on = verdict and verdict.result.measured_on
    used = verdict.result.software if verdict else {}
    used = used or {name: stored[name] for name in _LIBRARIES if name in stored}
    rows = [("Node", stored.get("node") or analysis.node)]
    rows += measured_on_rows(measured_on) if measured_on else []
    rows += [
        ("Libraries", "" if measured_on else format_versions(used)),
        ("Python", stored.get("python", "")),
        ("Engine", stored.get("engine", "")[:_ENGINE_DIGITS]),
    ]
    return [(label, value) for label, value in rows if value]
