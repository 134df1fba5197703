"""An analysis beside its training runs: predicted, measured and real."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analyses.models import Analysis, TrainingRun
from analyses.results.stored import result_of
from analyses.training_runs.matching import (
    request_of,
    why_not_verified,
    why_other,
    why_without_its_changes,
)
from engine.core.numbers import significant
from engine.core.sizes import gib_number
from engine.interface.result import AnalysisResult
from engine.interface.tokens import Tokens, tokens_of
from engine.interface.trial import Source, Trial
from engine.recording import TrainingRecord

SHOWN_TRAININGS = 5


@dataclass(frozen=True)
class BatchRow:
    """The use of one batch size; ``training`` is ``None`` for a trial.

    ``missed`` is the condition that a training run missed; empty if it ran as the answer says.
    """

    name: str
    source: Source
    batch_size: int
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    samples_per_second: float | None
    training: TrainingRun | None = None
    missed: str = ""


@dataclass(frozen=True)
class Other:
    """A reported run of another model or kind of GPU, which never counts for the analysis."""

    training: TrainingRun
    why: str


@dataclass(frozen=True)
class SideBySide:
    """The rows, and the newest run that did what the answer says, if any.

    Attributes:
        tokens: How they are counted in all rows: the runs train the analysis's workload.
        is_verified: Whether that verifies the analysis, which has adopted this answer.
        verified: That run beside its prediction, in a sentence; empty without one.
        missed: The condition that the newest run missed, in a sentence, where none verifies it.
        others: Runs that do not count.
    """

    rows: list[BatchRow]
    tokens: Tokens | None
    verified_by: TrainingRun | None
    is_verified: bool
    verified: str
    missed: str
    others: list[Other]


def side_by_side(analysis: Analysis, instead: AnalysisResult | None = None) -> SideBySide | None:
    """The table of an analysis; ``None`` if no training run has reported to it.

    Args:
        analysis: An analysis with its stored result.
        instead: The answer to hold the runs against instead of it, such as that of other moves.
    """
    trainings = last_reported(analysis)
    result, request = None, None
    if trainings:
        result, request = instead or result_of(analysis), request_of(analysis)
    if result is None or request is None:
        return None
    rows, others = list(_trials(result)), []
    for training in trainings:
        record = TrainingRecord.parse(training.record)
        if why := why_other(request, analysis.measured_gpu, result, record):
            others.append(Other(training, why))
            continue
        differs = "" if instead else why_without_its_changes(analysis, record)
        missed = differs or why_not_verified(request, analysis.measured_gpu, result, record)
        rows.append(_training(training, missed))
    by = next((row.training for row in rows if row.training and not row.missed), None)
    if instead is None:
        by = TrainingRun.objects.filter(analysis=analysis, verifies=True).first()
    said = [row.missed for row in rows if row.missed] or [other.why for other in others]
    return SideBySide(
        rows=rows,
        tokens=tokens_of(result.workload),
        verified_by=by,
        is_verified=bool(by and not instead and analysis.adopted_at),
        verified=_verified(by, next(_trials(result), None)) if by else "",
        missed="" if by else f"Not verified by the last run: {said[0]}." if said else "",
        others=others,
    )


def last_reported(analysis: Analysis) -> list[TrainingRun]:
    """The last training runs that have reported to an analysis, newest first."""
    reported = TrainingRun.objects.filter(analysis=analysis).select_related("owner")
    return list(reported[:SHOWN_TRAININGS])


def _verified(by: TrainingRun, expected: BatchRow | None) -> str:
    """A run beside what was predicted for it, or else measured, in a sentence."""
    pairs = []
    if expected and by.samples_per_second and expected.samples_per_second:
        ran, was = map(significant, (by.samples_per_second, expected.samples_per_second))
        pairs.append(f"measured {ran} against {was} samples/s {expected.name.lower()}")
    if expected and by.peak_reserved_bytes and expected.peak_reserved_bytes:
        ran, was = (
            gib_number(size, 1) for size in (by.peak_reserved_bytes, expected.peak_reserved_bytes)
        )
        pairs.append(f"{ran} against {was} GiB reserved")
    return f"Verified: {', '.join(pairs)}." if pairs else "Verified by a recorded run."


def _trials(result: AnalysisResult) -> Iterator[BatchRow]:
    """The recommended batch as it was predicted and measured."""
    for name, source in (
        ("Predicted", Source.PREDICTED),
        ("Computed", Source.COMPUTED),
        ("Measured", Source.MEASURED),
    ):
        trial = _trial(result, source)
        if trial is not None:
            yield BatchRow(
                name,
                source,
                trial.batch_size,
                trial.peak_allocated_bytes,
                trial.peak_reserved_bytes,
                trial.samples_per_second,
            )


def _trial(result: AnalysisResult, source: Source) -> Trial | None:
    key = (result.recommended_batch_size, source)
    trials = [*result.trials, *result.curve]
    return next((trial for trial in trials if (trial.batch_size, trial.source) == key), None)


def _training(training: TrainingRun, missed: str) -> BatchRow:
    return BatchRow(
        "Training run",
        Source.MEASURED,
        training.batch_size,
        training.peak_allocated_bytes,
        training.peak_reserved_bytes,
        training.samples_per_second,
        training,
        missed,
    )
