"""The lab's measurements beside their predictions: in trials, and in training runs.

All members' measurements count, since pages show no more of them than the prediction errors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from django.db.models import OuterRef, Q, QuerySet, Subquery

from analyses.models import Analysis, FigureSource, TrainingRun, Trial
from analyses.training_runs.matching import why_not_comparable
from engine.core.errors import InvalidInput
from engine.gpus import catalogue_name
from engine.interface.program import read_request
from engine.prediction.timing.past_errors import PredictedQuantity
from engine.recording import TrainingRecord


@dataclass(frozen=True)
class Compared:
    """One measurement beside its prediction.

    Attributes:
        of: The predicted quantity: peak reserved memory in bytes, or the step time in seconds.
        gpu: A name of the catalogue; empty for another.
    """

    of: PredictedQuantity
    gpu: str
    analysis_id: int
    model: str
    batch_size: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Signed, as a share of what was measured: below 0, the prediction was too low."""
        return self.predicted / self.measured - 1


def measured_trials() -> QuerySet[Trial]:
    """The measured trials whose step time was predicted too, newest first."""
    return Trial.objects.filter(
        source=FigureSource.MEASURED, operations_seconds__isnull=False
    ).order_by("-pk")


def step_times_of(trials: QuerySet[Trial]) -> Iterator[Compared]:
    """The step times of measured trials; one query."""
    columns = trials.values_list(
        "analysis__measured_gpu", "analysis_id", "analysis__model", "batch_size",
        "operations_seconds", "step_seconds",
    )  # fmt: skip
    for device, analysis, model, batch_size, predicted, measured in columns:
        which = (catalogue_name(device) or "", analysis, model, batch_size)
        yield from _compared(PredictedQuantity.STEP_TIME, *which, predicted, measured)


def peaks_of(trials: QuerySet[Trial], analyses: int) -> Iterator[Compared]:
    """The peak memory of measured trials, beside the predicted curve of their analyses.

    Args:
        trials: Newest first.
        analyses: Maximum number of their analyses, since the curves are read from stored results.
    """
    columns = trials.values_list(
        "analysis__measured_gpu", "analysis_id", "analysis__model", "batch_size",
        "peak_reserved_bytes",
    )  # fmt: skip
    rows = [row for row in columns if row[-1]]
    newest = list(dict.fromkeys(analysis for _, analysis, *_ in rows))[:analyses]
    curves = dict(Analysis.objects.filter(pk__in=newest).values_list("pk", "result__curve"))
    for device, analysis, model, batch_size, measured in rows:
        known = {
            point["batch_size"]: point["peak_reserved_bytes"]
            for point in curves.get(analysis) or ()
            if point["source"] == FigureSource.PREDICTED and point.get("peak_reserved_bytes")
        }
        predicted = between(known, batch_size)
        which = (catalogue_name(device) or "", analysis, model, batch_size)
        yield from _compared(PredictedQuantity.MEMORY, *which, predicted, measured)


def between(known: Mapping[int, float], batch_size: int) -> float | None:
    """The value at a batch size, on a line between those that are known; ``None`` beyond them."""
    if batch_size in known:
        return known[batch_size]
    sizes = sorted(known)
    after = bisect_left(sizes, batch_size)
    if after in (0, len(sizes)):
        return None
    low, high = sizes[after - 1], sizes[after]
    share = (batch_size - low) / (high - low)
    return known[low] + share * (known[high] - known[low])


def training_runs_of(runs: QuerySet[TrainingRun], most: int) -> Iterator[Compared]:
    """The last training runs that trained what their analysis predicts; memory and step time."""
    predicted = Trial.objects.filter(
        analysis=OuterRef("analysis"),
        batch_size=OuterRef("batch_size"),
        source__in=(FigureSource.PREDICTED, FigureSource.COMPUTED),
    ).order_by("-pk")
    found = (
        runs.select_related("analysis")
        .defer("analysis__result")  # large, and not read
        .annotate(
            predicted_bytes=Subquery(predicted.values("peak_reserved_bytes")[:1]),
            predicted_seconds=Subquery(predicted.values("step_seconds")[:1]),
            predicted_breakdown=Subquery(predicted.values("breakdown")[:1]),
        )
        .filter(Q(predicted_bytes__isnull=False) | Q(predicted_seconds__isnull=False))
    )
    for run in found[:most]:
        if run.analysis is None:
            continue
        try:
            request = read_request(run.analysis.request)
            record = TrainingRecord.parse(run.record)
        except InvalidInput:  # of another version of MemoryMark
            continue
        held = (run.predicted_breakdown or {}).get("parameters")
        if why_not_comparable(request, run.analysis.measured_gpu, record, held):
            continue
        gpu = catalogue_name(run.device_name) or ""
        which = (gpu, run.analysis.pk, run.analysis.model, run.batch_size)
        yield from _compared(
            PredictedQuantity.MEMORY, *which, run.predicted_bytes, run.peak_reserved_bytes
        )
        yield from _compared(
            PredictedQuantity.STEP_TIME, *which, run.predicted_seconds, record.step_seconds
        )


def _compared(
    of: PredictedQuantity,
    gpu: str,
    analysis_id: int,
    model: str,
    batch_size: int,
    predicted: float | None,
    measured: float | None,
) -> Iterator[Compared]:
    """One, if both figures are known."""
    if predicted and measured:
        yield Compared(of, gpu, analysis_id, model, batch_size, predicted, measured)
