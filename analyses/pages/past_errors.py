"""How far off predictions were on such models: in the lab itself, and where others measured.

All members' measurements count, since the page tells no more of them than how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import OuterRef, Q, Subquery

from analyses.models import Analysis, FigureSource, Training, Trial
from analyses.training_runs.services import why_not_comparable
from engine.errors import InvalidInput
from engine.gpus import GPUS, catalogue_name
from engine.prediction.past_errors import ALL, Errors, Group, Predicted, groups_like
from engine.recording import TrainingRecord
from engine.request import AnalysisRequest
from engine.result import AnalysisResult

_MOST_TRIALS, _MOST_RUNS = 200, 50
"""So many of the lab's last measured trials of a model count, and so many training runs."""


@dataclass(frozen=True)
class ErrorRow:
    """One row of the table.

    Attributes:
        models: Which ones.
        where: On which GPU, and who measured.
    """

    models: str
    where: str
    errors: Errors

    @property
    def median(self) -> str:
        return _percent(self.errors.median)

    @property
    def percentile_90(self) -> str:
        """Empty where there are too few."""
        most = self.errors.percentile_90
        return "" if most is None else f"±{_percent(most)}"


@dataclass(frozen=True)
class PastErrors:
    """The errors of one kind of prediction, those of the most similar models first."""

    rows: list[ErrorRow]
    is_measured_here: bool


def past_errors(analysis: Analysis, result: AnalysisResult) -> dict[str, PastErrors]:
    """Those of memory and of step times, by the name of the tab that shows them."""
    gpu = catalogue_name(result.gpu.name) or ""
    runs = list(_runs(analysis.model))
    memory = [(run.gpu, run.memory_error) for run in runs if run.memory_error is not None]
    times = [(run.gpu, run.time_error) for run in runs if run.time_error is not None]
    model_type = _type_of(result)
    return {
        "memory": _past(Predicted.MEMORY, memory, model_type, gpu),
        "speed": _past(Predicted.STEP_TIME, [*times, *_trials(analysis.model)], model_type, gpu),
    }


def _past(
    of: Predicted, here: Sequence[tuple[str, float]], model_type: str, gpu: str
) -> PastErrors:
    on_gpu = [error for place, error in here if gpu and place == gpu]
    own = Errors.of(on_gpu or [error for _, error in here])
    rows = []
    if own is not None:
        rows.append(ErrorRow("This model", f"{_name(gpu if on_gpu else '')}, your lab", own))
    rows += [
        ErrorRow(_models(group), f"{_name(group.gpu)}, published", group.errors)
        for group in groups_like(of, model_type, gpu)
    ]
    return PastErrors(rows, own is not None)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _name(gpu: str) -> str:
    return GPUS[gpu].display_name if gpu in GPUS else "all GPUs"


def _models(group: Group) -> str:
    names = {ALL: "All models", "transformers": "Transformers", "convolutional": "Convolutional"}
    return names.get(group.models, f"Models of type {group.models}")


def _type_of(result: AnalysisResult) -> str:
    """The ``model_type`` of the config; empty where it is not known."""
    try:
        config = result.workload.preset.config() if result.workload else {}
    except LookupError:
        return ""
    return str(config.get("model_type", ""))


def _trials(model: str) -> Iterator[tuple[str, float]]:
    """The GPU and the step time's error of each of a model's measured trials."""
    measured = Trial.objects.filter(
        source=FigureSource.MEASURED, operations_seconds__isnull=False, analysis__model=model
    ).order_by("-pk")
    figures = measured.values_list("analysis__measured_gpu", "operations_seconds", "step_seconds")
    for device, predicted, seconds in figures[:_MOST_TRIALS]:
        if (error := _error(predicted, seconds)) is not None:
            yield catalogue_name(device) or "", error


@dataclass(frozen=True)
class _Run:
    """A training run beside what was predicted for its batch; the errors where both are known."""

    gpu: str
    memory_error: float | None
    time_error: float | None


def _runs(model: str) -> Iterator[_Run]:
    """The last training runs that trained what an analysis of the model predicts."""
    predicted = Trial.objects.filter(
        analysis=OuterRef("analysis"),
        batch_size=OuterRef("batch_size"),
        source__in=(FigureSource.PREDICTED, FigureSource.COMPUTED),
    ).order_by("-pk")
    runs = (
        Training.objects.filter(analysis__model=model)
        .select_related("analysis")
        .defer("analysis__result")  # large, and not read
        .annotate(
            predicted_bytes=Subquery(predicted.values("peak_reserved_bytes")[:1]),
            predicted_seconds=Subquery(predicted.values("step_seconds")[:1]),
        )
        .filter(Q(predicted_bytes__isnull=False) | Q(predicted_seconds__isnull=False))
    )
    for run in runs[:_MOST_RUNS]:
        if run.analysis is None:
            continue
        try:
            request = AnalysisRequest.parse(run.analysis.request)
            record = TrainingRecord.parse(run.record)
        except InvalidInput:  # of another version of MemoryMark
            continue
        if not why_not_comparable(request, run.analysis.measured_gpu, record):
            yield _Run(
                catalogue_name(run.device_name) or "",
                _error(run.predicted_bytes, run.peak_reserved_bytes),
                _error(run.predicted_seconds, record.step_seconds),
            )


def _error(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1 if predicted and measured else None
