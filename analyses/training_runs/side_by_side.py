"""An analysis beside its training runs: predicted, measured and real."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analyses.models import Analysis, Training
from analyses.stored_result import result_of
from engine.interface.result import AnalysisResult, Source, Trial
from engine.interface.tokens import Tokens, tokens_of

SHOWN_TRAININGS = 5


@dataclass(frozen=True)
class Row:
    """The use of one batch size; ``training`` is ``None`` for a trial."""

    name: str
    source: Source
    batch_size: int
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    samples_per_second: float | None
    training: Training | None = None


@dataclass(frozen=True)
class SideBySide:
    """The rows, and the newest run that verifies the recommendation, if any.

    ``tokens`` is how they are counted in all of them: the runs train the analysis's workload.
    """

    rows: list[Row]
    tokens: Tokens | None
    verified_by: Training | None
    is_verified: bool


def side_by_side(analysis: Analysis) -> SideBySide | None:
    """The table of an analysis; ``None`` if no training run has reported to it."""
    reported = Training.objects.filter(analysis=analysis).select_related("owner")
    trainings = list(reported[:SHOWN_TRAININGS])
    result = result_of(analysis) if trainings else None
    if result is None:
        return None
    by = reported.filter(verifies=True).first()
    is_verified = by is not None and analysis.adopted_at is not None
    rows = [*_trials(result), *map(_training, trainings)]
    return SideBySide(rows, tokens_of(result.workload), by, is_verified)


def _trials(result: AnalysisResult) -> Iterator[Row]:
    """The recommended batch as it was predicted and measured."""
    for name, source in (
        ("Predicted", Source.PREDICTED),
        ("Computed", Source.COMPUTED),
        ("Measured", Source.MEASURED),
    ):
        trial = _trial(result, source)
        if trial is not None:
            yield Row(
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


def _training(training: Training) -> Row:
    return Row(
        "Training run",
        Source.MEASURED,
        training.batch_size,
        training.peak_allocated_bytes,
        training.peak_reserved_bytes,
        training.samples_per_second,
        training,
    )
