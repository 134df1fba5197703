"""What the pages of an analysis show: its figures with their sources, its settings, its state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from analyses.charts.batch_size import batch_size_chart, chart_description
from analyses.charts.breakdown import (
    breakdown_chart,
    breakdown_description,
    breakdown_source,
)
from analyses.charts.knee import knee_of
from analyses.charts.memory_bars import (
    BreakdownRow,
    MemoryBar,
    breakdown_rows,
    memory_bars,
)
from analyses.charts.parts import PlotlyDict
from analyses.charts.timeline import timeline_chart, timeline_description, timeline_note
from analyses.formatting import (
    UNKNOWN,
    duration,
    exact,
    gib_with_unit,
    percent,
    significant,
    times,
    usd,
    whole,
)
from analyses.models import Analysis, Status
from analyses.stored_result import result_of, source_at
from engine.answer.measured_on import measured_on_in_words
from engine.result import AnalysisResult, Savings, Source

LONG_WAIT_SECONDS = 15.0
"""After this long in the queue the page says that no worker seems to be running."""

_LIBRARIES = ("torch", "transformers", "peft")
_ENGINE_DIGITS = 12
"""Of the engine's fingerprint: enough to tell its versions in one lab apart."""

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


def key_figures(result: AnalysisResult) -> list[Figure]:
    """Largest batch, recommended batch and headroom."""
    return [
        Figure(
            "Largest batch that fits",
            whole(result.largest_batch_size),
            _limit_note(result),
            (result.source,),
        ),
        Figure(
            "Recommended batch",
            whole(result.recommended_batch_size),
            _recommendation_note(result),
            (source_at(result, result.recommended_batch_size),),
            tone="good",
        ),
        _headroom_figure(result),
    ]


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


def worth_figures(result: AnalysisResult, *, adopted: bool = False) -> list[Figure]:
    """Speedup, cost per run and yearly savings."""
    savings = result.savings
    yearly = f"{'Realised' if adopted else 'Potential'} savings per year"
    if savings:
        return [_speedup_figure(result), _cost_figure(savings), _savings_figure(yearly, savings)]
    note = "without a speedup there is nothing to compare"
    nothing = [Figure(label, UNKNOWN, note, (), tone="quiet") for label in ("Cost per run", yearly)]
    return [_speedup_figure(result), *nothing]


def has_gain(result: AnalysisResult) -> bool:
    """Whether the engine found the recommended batch faster beyond its noise."""
    if result.speedup is None or result.savings is None:
        return False
    if result.speedup_low is not None:
        return result.speedup_low > 1
    savings = result.savings  # an older version stored it, without the interval
    nothing_to_save = savings.hours_per_run * savings.runs_per_year == 0
    return result.speedup > 1 and (savings.gpu_hours_per_year > 0 or nothing_to_save)


def speedup_in_list(analysis: Analysis) -> str:
    """The speedup of a row in a list, told apart from noise as on the analysis's own page."""
    if analysis.speedup is None:
        return UNKNOWN
    return times(analysis.speedup) if gain_of(analysis) else "no gain"


def gain_of(analysis: Analysis) -> bool | None:
    """Whether the speedup of a row is one beyond the noise; ``None`` where none is known."""
    if analysis.speedup is None:
        return None
    assumed, price = analysis.request, analysis.request.get("price_per_hour_usd")
    nothing_to_save = 0 in (assumed["hours_per_run"], assumed["runs_per_year"], price)
    return analysis.speedup > 1 and ((analysis.usd_per_year or 0) > 0 or nothing_to_save)


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


def _recommendation_note(result: AnalysisResult) -> str:
    """Why this batch: fast enough, or as fast as memory and the global batch allow."""
    knee = knee_of(result)
    if knee is None or knee.is_enough:
        return "the smallest within 5 % of the best samples per second"
    bounds = "memory and the global batch allow" if result.global_batch else "memory safely allows"
    return f"as fast as {bounds}; a larger batch would be more than 5 % faster"


def _limit_note(result: AnalysisResult) -> str:
    next_size = whole(result.next_batch_size)
    note = f"{next_size} does not fit"
    if not result.next_batch_size_fails:
        note = f"the search ended here; {next_size} was not tried"
    safe = result.safe_batch_size
    if safe is None or safe == result.largest_batch_size:
        return note
    if safe == 0:
        return f"{note}; at the high end of the prediction not even the smallest batch fits"
    return f"{note}; {whole(safe)} fits even at the high end of the prediction"


def _headroom_figure(result: AnalysisResult) -> Figure:
    current, largest = result.current_headroom_bytes, result.largest_headroom_bytes
    source = source_at(result, result.current_batch_size)
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
        note += _interval(result)
        if current == recommended:
            note = f"batch {current} is already the recommended one"
        elif result.speedup < 1:
            note = f"batch {recommended} saves memory, not time: {times(result.speedup)} the speed"
        return Figure("Speedup", "no gain", note, (source,), tone="quiet")
    note = f"samples per second, batch {recommended} against {current}{_interval(result)}"
    return Figure("Speedup", times(result.speedup), note, (source,), tone="good")


def _interval(result: AnalysisResult) -> str:
    low, high = result.speedup_low, result.speedup_high
    if low is None or high is None:
        return ""
    rounds = ""
    if result.comparison is not None:
        count = len(result.comparison.current_samples_per_second)
        rounds = f" over {count} rounds in turn"
    return f"; {significant(low)} to {times(high)}{rounds}"


def _cost_figure(savings: Savings) -> Figure:
    current, recommended = savings.current_usd_per_run, savings.recommended_usd_per_run
    price = f"at {usd(savings.price_per_hour_usd)} per GPU-hour"
    hours = f"{exact(savings.hours_per_run)} GPU-hours per run today"
    value = usd(current) if current == recommended else f"{usd(current)} → {usd(recommended)}"
    return Figure("Cost per run", value, f"{hours}, {price}", (savings.source, Source.ASSUMED))


def _savings_figure(label: str, savings: Savings) -> Figure:
    runs = f"{exact(savings.runs_per_year)} runs per year"
    return Figure(
        label,
        usd(savings.usd_per_year),
        f"{significant(savings.gpu_hours_per_year)} GPU-hours, over {runs}",
        (savings.source, Source.ASSUMED),
        tone="good" if savings.usd_per_year > 0 else "quiet",
    )
