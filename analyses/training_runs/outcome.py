"""Inbox entries about what a reported training run shows of its analysis's prediction."""

from __future__ import annotations

from collections.abc import Iterator

from analyses.figures.columns import stored
from analyses.models import Analysis, Concern, TrainingRun
from analyses.notifications import inbox
from analyses.results.stored import result_of
from analyses.training_runs.matching import request_of, why_other
from engine.core.numbers import milliseconds, whole
from engine.core.sizes import gib_number
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source, Trial
from engine.recording import TrainingRecord


def note_run(run: TrainingRun) -> None:
    """Add to the inbox of an analysis's owner what a run of it shows; nothing for another's run.

    A run that verifies the recommendation confirms the prediction or misses its interval. One with
    another batch is advised to take the recommended one.
    """
    analysis = run.analysis
    result, request = (result_of(analysis), request_of(analysis)) if analysis else (None, None)
    if analysis is None or result is None or request is None:
        return
    record = TrainingRecord.parse(run.record)
    if run.verifies:
        kind, text = _held_against(result, record)
        inbox.add(analysis, kind, f"Run on {run.host} with batch {whole(run.batch_size)}: {text}.")
    elif _is_advised(analysis, result, record) and not why_other(
        request, analysis.measured_gpu, result, record
    ):
        inbox.add(analysis, Concern.ADVICE, _advice(analysis, run, result, record))


def _is_advised(analysis: Analysis, result: AnalysisResult, record: TrainingRecord) -> bool:
    """Whether the run trained with the batch of before, where another one is faster."""
    is_other = record.batch_size != result.recommended_batch_size
    return bool(analysis.has_gain and record.timed_steps and is_other)


def _advice(
    analysis: Analysis, run: TrainingRun, result: AnalysisResult, record: TrainingRecord
) -> str:
    used = ""
    if record.peak_reserved_bytes:
        peak, total = map(gib_number, (record.peak_reserved_bytes, record.device_total_bytes))
        used = f", {peak} of {total} GiB reserved (measured)"
    than = f"the speed of batch {whole(result.current_batch_size)} ({result.source})"
    return (
        f"Run on {run.host}: batch {whole(run.batch_size)}{used}. Recommended is batch "
        f"{whole(result.recommended_batch_size)}, {stored(analysis, 'speedup')} {than}."
    )


def _held_against(result: AnalysisResult, record: TrainingRecord) -> tuple[Concern, str]:
    """Whether what was measured lies within what was predicted, and both in words."""
    trial = _predicted(result)
    found = list(_figures(trial, record)) if trial else []
    kind = Concern.VERIFIED if all(inside for inside, _ in found) else Concern.MISSED
    said = [text for inside, text in found if inside == (kind is Concern.VERIFIED)]
    return kind, "; ".join(said) or "it trained as recommended"


def _predicted(result: AnalysisResult) -> Trial | None:
    trials = [*result.trials, *result.curve]
    key = (result.recommended_batch_size, Source.PREDICTED)
    return next((trial for trial in trials if (trial.batch_size, trial.source) == key), None)


def _figures(trial: Trial, record: TrainingRecord) -> Iterator[tuple[bool, str]]:
    """Yield whether a figure lies in its interval, and the figure beside it."""
    peak, reserved = record.peak_reserved_bytes, trial.peak_reserved_bytes
    used, least, most = (
        trial.device_used_bytes,
        trial.device_used_low_bytes,
        trial.device_used_high_bytes,
    )
    if peak and reserved and used and least and most:
        low, high = reserved + least - used, reserved + most - used  # what CUDA takes is no error
        yield (
            low <= peak <= high,
            f"{gib_number(peak)} GiB reserved (measured), predicted {gib_number(low)} to "
            f"{gib_number(high)}",
        )
    step, low_s, high_s = record.step_seconds, trial.step_seconds_low, trial.step_seconds_high
    if step and low_s and high_s and record.gradient_accumulation == 1:
        yield (
            low_s <= step <= high_s,
            f"{milliseconds(step)} ms a step (measured), predicted {milliseconds(low_s)} to "
            f"{milliseconds(high_s)}",
        )
