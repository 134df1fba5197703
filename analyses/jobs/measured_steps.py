"""The steps that the lab has measured, which correct the step times it predicts.

They come from measured trials, run here or pushed, and from training runs of an analysis. All
members' count, since an answer reveals no more of them than their number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from django.db.models import Max, QuerySet, Value

from analyses.gpus import self_checks
from analyses.models import Analysis, FigureSource, TrainingRun, Trial
from analyses.results.decided import own_result
from analyses.training_runs.matching import (
    parameter_bytes_in,
    request_of,
    why_not_comparable,
)
from analyses.training_runs.prediction_errors import between
from engine.gpus import ANY, catalogue_name
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.prediction.timing.intervals import Counted, Residual
from engine.prediction.timing.speed_model import STEP_PREDICTOR
from engine.recording import TrainingRecord

MAX_RECENT = 200
"""Maximum number of recent trials sent to an engine, and of training runs."""


def measured_steps(gpu: str) -> list[Residual]:
    """The last steps measured on a catalogue GPU, or on any, each beside its prediction.

    There is none where the step depended on an unknown host: it describes that host.
    """
    found = chain(
        map(_of_trial, _trials(gpu)[:MAX_RECENT]), map(_of_run, _training_runs(gpu)[:MAX_RECENT])
    )
    return [residual for residual in found if residual is not None]


def newest(gpu: str) -> str:
    """Version of the measured steps and self-checks of a catalogue GPU, for cache keys."""
    trials = _measured_trials().order_by().values_list("analysis__measured_gpu")
    runs = _reported_runs().order_by().values_list("device_name")
    last = trials.annotate(kind=Value("trial"), last=Max("pk")).union(
        runs.annotate(kind=Value("training run"), last=Max("pk"))
    )
    found = sorted(f"{kind} {number}" for name, kind, number in last if _those_of(gpu, [name]))
    return " ".join((*found, self_checks.newest(gpu)))


def _trials(gpu: str) -> QuerySet[Trial]:
    measured = _measured_trials().order_by("-pk")
    names = measured.order_by().values_list("analysis__measured_gpu", flat=True).distinct()
    of_gpu = measured.filter(analysis__measured_gpu__in=_those_of(gpu, names))
    return of_gpu.select_related("analysis").defer("analysis__result")  # large, and not read


def _measured_trials() -> QuerySet[Trial]:
    """Measured trials on any GPU."""
    return Trial.objects.filter(source=FigureSource.MEASURED, step_seconds__isnull=False)


def _reported_runs() -> QuerySet[TrainingRun]:
    """Training runs on any GPU that belong to an analysis with a result."""
    return TrainingRun.objects.filter(analysis__source__gt="")


def _training_runs(gpu: str) -> QuerySet[TrainingRun]:
    reported = _reported_runs()
    names = reported.order_by().values_list("device_name", flat=True).distinct()
    return reported.filter(device_name__in=_those_of(gpu, names)).select_related(
        "analysis__decided"
    )


def _those_of(gpu: str, names: Iterable[str]) -> list[str]:
    """Drivers' names of a catalogue GPU, or of any."""
    return [name for name in names if gpu in (catalogue_name(name), ANY)]


def _of_trial(trial: Trial) -> Residual | None:
    analysis = trial.analysis
    step = (trial.batch_size, trial.step_seconds, trial.operations_seconds)
    return _residual(analysis, analysis.measured_gpu, *step, f"analysis {analysis.pk}")


def _of_run(run: TrainingRun) -> Residual | None:
    analysis, record = run.analysis, TrainingRecord.parse(run.record)
    # A run of what is asked about is held against that, not against what is decided.
    result = None if analysis is None else own_result(analysis)
    request = None if analysis is None else _of_workload(analysis)
    if analysis is None or result is None or request is None:
        return None
    held = parameter_bytes_in(result.trials)
    if why_not_comparable(request, analysis.measured_gpu, record, held):
        return None
    workload = request.workload_at(record.batch_size)
    predicted = None  # for another number of micro-batches
    if workload.gradient_accumulation == record.gradient_accumulation:
        predicted = _operations_seconds(result, record.batch_size)
    step = (record.batch_size, record.step_seconds, predicted)
    found = _residual(analysis, run.device_name, *step, f"training run {run.pk}")
    if found is None:
        return None
    trained = {"gradient_accumulation": record.gradient_accumulation}
    return replace(found, workload={**found.workload, **trained})


def _residual(
    analysis: Analysis,
    device_name: str,
    batch_size: int,
    measured: float | None,
    predicted: float | None,
    source: str,
) -> Residual | None:
    request, gpu = _of_workload(analysis), catalogue_name(device_name)
    if request is None or gpu is None or not measured:
        return None
    return Residual(
        gpu=gpu,
        workload=request.workload_at(batch_size).to_dict(),
        batch_size=batch_size,
        counted=Counted.STEP_SECONDS,
        measured=measured,
        predicted=predicted or None,
        source=source,
        predictor=analysis.environment.get(STEP_PREDICTOR, ""),
    )


def _of_workload(analysis: Analysis) -> AnalysisRequest | None:
    """The request of an analysis; ``None`` for a script, of which nothing else can learn."""
    request = request_of(analysis)
    return request if isinstance(request, AnalysisRequest) else None


def _operations_seconds(result: AnalysisResult, batch_size: int) -> float | None:
    """Time of the operations at a batch size, interpolated between predicted ones."""
    known = {
        trial.batch_size: trial.operations_seconds
        for trial in [*result.curve, *result.trials]
        if trial.operations_seconds is not None
    }
    return between(known, batch_size)
