"""From trials to the answer: a pure function, the same for predicted and for measured figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.economics import PREDICTED_NOISE, savings, speedup
from engine.request import AnalysisRequest
from engine.result import AnalysisResult, GpuFacts, Source, Trial
from engine.search import SearchOutcome
from engine.verdict import verdict


@dataclass(frozen=True)
class Findings:
    """What an analysis found out, before it is put into an answer.

    Attributes:
        gpu: What it was made for.
        outcome: The search, with every trial made.
        current: The trial of the current batch size.
        recommended: The trial of the recommended batch size.
        curve: Points for the chart of memory against batch.
        price_per_hour_usd: Of one hour of that GPU.
        source: Of the limit and of the speeds.
        noise: The share within which a speedup is no gain.
        caveats: What a reader has to know.
    """

    gpu: GpuFacts
    outcome: SearchOutcome
    current: Trial
    recommended: Trial
    curve: Sequence[Trial]
    price_per_hour_usd: float
    source: Source
    noise: float = PREDICTED_NOISE
    caveats: Sequence[str] = ()


def conclude(request: AnalysisRequest, found: Findings) -> AnalysisResult:
    """The answer to a request, from what was found out."""
    current, recommended = found.current, found.recommended
    gained = saved = None
    if current.fits and current.samples_per_second and recommended.samples_per_second:
        speeds = (current.samples_per_second, recommended.samples_per_second)
        gained = speedup(*speeds)
        saved = savings(
            request.assumptions, found.price_per_hour_usd, *speeds, found.source, found.noise
        )
    largest = _trial_of(found.outcome.largest_batch_size, found.outcome.trials)
    return AnalysisResult(
        model_name=request.workload.preset.display_name,
        workload=request.workload,
        gpu=found.gpu,
        source=found.source,
        largest_batch_size=found.outcome.largest_batch_size,
        next_batch_size=found.outcome.next_batch_size,
        next_batch_size_fails=found.outcome.next_batch_size_fails,
        recommended_batch_size=recommended.batch_size,
        current_batch_size=current.batch_size,
        current_headroom_bytes=_headroom(current, found.gpu) if current.fits else None,
        largest_headroom_bytes=_headroom(largest, found.gpu),
        speedup=gained,
        savings=saved,
        verdict=verdict(
            found.outcome,
            recommended_batch_size=recommended.batch_size,
            current_batch_size=current.batch_size,
            speedup=gained,
            source=found.source,
            noise=found.noise,
        ),
        curve=list(found.curve),
        trials=_in_order(found.outcome.trials, current, recommended),
        caveats=list(found.caveats),
    )


def _headroom(trial: Trial, gpu: GpuFacts) -> int:
    """Bytes left unused on the device; of tensor memory, where there is no allocator."""
    used = trial.device_used_bytes
    return gpu.total_bytes - (used if used is not None else trial.peak_allocated_bytes or 0)


def _trial_of(batch_size: int, trials: Sequence[Trial]) -> Trial:
    return next(trial for trial in trials if trial.batch_size == batch_size)


def _in_order(trials: Sequence[Trial], *others: Trial) -> list[Trial]:
    """Every trial once, in the order of trying."""
    return list({trial.batch_size: trial for trial in (*trials, *others)}.values())
