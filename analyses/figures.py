"""An answer's figures in words, each with its note and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyses.charts.knee import knee_of
from analyses.formatting import (
    UNKNOWN,
    exact,
    gib_with_unit,
    percent,
    significant,
    times,
    usd,
    whole,
)
from analyses.models import Analysis
from analyses.stored_result import source_at
from engine.result import AnalysisResult, Savings, Source

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
    return speedup_by(analysis, _assumed(analysis))


def speedup_by(analysis: Analysis, assumed: Sequence[float | None]) -> str:
    """The same, where the assumptions of the savings are at hand, and the request is not."""
    if analysis.speedup is None:
        return UNKNOWN
    return times(analysis.speedup) if _is_gain(analysis, assumed) else "no gain"


def gain_of(analysis: Analysis) -> bool | None:
    """Whether the speedup of a row is one beyond the noise; ``None`` where none is known."""
    return None if analysis.speedup is None else _is_gain(analysis, _assumed(analysis))


def _assumed(analysis: Analysis) -> Sequence[float | None]:
    request = analysis.request
    return request["hours_per_run"], request["runs_per_year"], request.get("price_per_hour_usd")


def _is_gain(analysis: Analysis, assumed: Sequence[float | None]) -> bool:
    """The engine saves nothing by noise; nor by a gain where hours, runs or price are zero."""
    saves = (analysis.usd_per_year or 0) > 0 or 0 in assumed
    return (analysis.speedup or 0) > 1 and saves


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
