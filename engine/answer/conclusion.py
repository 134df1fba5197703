"""From trials to the answer: a pure function, the same for predicted and for measured figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.answer.certificate import certificate
from engine.answer.comparison import speedup_in_turn
from engine.answer.economics import PREDICTED_NOISE, Speedup, savings, speedup
from engine.answer.recommendation import Bound, changed_global_batch, kept_global_batch
from engine.answer.search import SearchOutcome
from engine.answer.verdict import verdict
from engine.request import AnalysisRequest, Question
from engine.result import (
    AnalysisResult,
    Comparison,
    GpuFacts,
    LargeTensor,
    MeasuredOn,
    Source,
    TimelinePoint,
    Trial,
)
from engine.workload import Workload


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
        noise: Half the width of the speedup's interval, as a share, where nothing was compared in
            turn.
        comparison: Current and recommended batch, measured in turn; ``None`` if they were not.
        measured_on: What the trials ran on; ``None`` where nothing was measured.
        caveats: What a reader has to know.
        bound: What decided the recommended batch.
        safe_batch_size: The largest that fits even at the high end of its prediction; ``None``
            where the limit was measured.
        timeline: Memory along a step of the recommended batch; empty where it is not known.
        largest_tensors: The largest tensors at its peak; empty as above.
    """

    gpu: GpuFacts
    outcome: SearchOutcome
    current: Trial
    recommended: Trial
    curve: Sequence[Trial]
    price_per_hour_usd: float
    source: Source
    noise: float = PREDICTED_NOISE
    comparison: Comparison | None = None
    measured_on: MeasuredOn | None = None
    caveats: Sequence[str] = ()
    bound: Bound = Bound.SPEED
    safe_batch_size: int | None = None
    timeline: Sequence[TimelinePoint] = ()
    largest_tensors: Sequence[LargeTensor] = ()

    @property
    def sides(self) -> tuple[int, int]:
        """The batch sizes on both sides of the limit."""
        return self.outcome.largest_batch_size, self.outcome.next_batch_size


def conclude(request: AnalysisRequest, found: Findings) -> AnalysisResult:
    """The answer to a request for a model that the engine knows, from what was found out."""
    commands = certificate(request, found.source, found.sides)
    workload = request.workload
    return answer(request, found, workload.preset.display_name, commands, workload)


def answer(
    request: Question,
    found: Findings,
    model_name: str,
    commands: list[str],
    workload: Workload | None = None,
) -> AnalysisResult:
    """The answer, whatever is trained.

    Args:
        request: What was asked.
        found: What was found out.
        model_name: What is trained, as people know it.
        commands: Those that repeat the trials on both sides of the limit.
        workload: What is trained and how; ``None`` for a person's own code.
    """
    current, recommended = found.current, found.recommended
    gained = _gained(found)
    saved = None
    if gained is not None:
        saved = savings(request.assumptions, found.price_per_hour_usd, gained, found.source)
    largest = _trial_of(found.outcome.largest_batch_size, found.outcome.trials)
    return AnalysisResult(
        model_name=model_name,
        workload=workload,
        gpu=found.gpu,
        source=found.source,
        largest_batch_size=found.outcome.largest_batch_size,
        next_batch_size=found.outcome.next_batch_size,
        next_batch_size_fails=found.outcome.next_batch_size_fails,
        recommended_batch_size=recommended.batch_size,
        current_batch_size=current.batch_size,
        current_headroom_bytes=_headroom(current, found.gpu) if current.fits else None,
        largest_headroom_bytes=_headroom(largest, found.gpu),
        speedup=None if gained is None else gained.ratio,
        savings=saved,
        verdict=verdict(
            found.outcome,
            recommended_batch_size=recommended.batch_size,
            current_batch_size=current.batch_size,
            speedup=gained,
            source=found.source,
            bound=found.bound,
            safe_batch_size=found.safe_batch_size,
        ),
        curve=list(found.curve),
        trials=_in_order(found.outcome.trials, current, recommended),
        caveats=[*found.caveats, *_about_global_batch(request, recommended.batch_size)],
        timeline=list(found.timeline),
        largest_tensors=list(found.largest_tensors),
        certificate=commands,
        safe_batch_size=found.safe_batch_size,
        global_batch=kept_global_batch(request, recommended.batch_size),
        speedup_low=None if gained is None else gained.low,
        speedup_high=None if gained is None else gained.high,
        comparison=found.comparison,
        measured_on=found.measured_on,
    )


def _gained(found: Findings) -> Speedup | None:
    """What the recommended batch gains: of what was measured in turn, if it was."""
    if found.comparison is not None:
        return speedup_in_turn(found.comparison)
    current, recommended = found.current, found.recommended
    if not (current.fits and current.samples_per_second and recommended.samples_per_second):
        return None
    return speedup(current.samples_per_second, recommended.samples_per_second, found.noise)


def _about_global_batch(request: Question, recommended: int) -> list[str]:
    changed = changed_global_batch(request, recommended)
    kept = kept_global_batch(request, recommended)
    if kept is not None and kept.kept_size != kept.size:
        return [
            f"No allowed batch divides the global batch of {kept.size:,} evenly: "
            f"{kept.gradient_accumulation:,} micro-batches of {recommended:,} make "
            f"{kept.kept_size:,}."
        ]
    return [changed] if changed else []


def _headroom(trial: Trial, gpu: GpuFacts) -> int:
    """Bytes left unused on the device; of tensor memory, where there is no allocator."""
    used = trial.device_used_bytes
    return gpu.total_bytes - (used if used is not None else trial.peak_allocated_bytes or 0)


def _trial_of(batch_size: int, trials: Sequence[Trial]) -> Trial:
    return next(trial for trial in trials if trial.batch_size == batch_size)


def _in_order(trials: Sequence[Trial], *others: Trial) -> list[Trial]:
    """Every trial once, in the order of trying."""
    return list({trial.batch_size: trial for trial in (*trials, *others)}.values())
