"""One analysis of a model that the engine builds, from request to result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from . import software
from .events import Event, Log
from .gpus import LOCAL
from .hub import resolve
from .measurement.analysis import analyze_measured
from .prediction.analysis import analyze_predicted
from .prediction.correction import Experience
from .prediction.intervals import Residual
from .prediction.traces import TraceRequest
from .request import AnalysisRequest
from .result import AnalysisResult, Source, Trial
from .step.building import blaming_the_config


def analyze(
    request: AnalysisRequest,
    emit: Callable[[Event], None],
    known: Sequence[Trial] = (),
    traced: TraceRequest | None = None,
    measured: Sequence[Residual] = (),
) -> AnalysisResult:
    """Run an analysis: a prediction for a catalogue GPU, measurements for ``local``.

    Args:
        request: What to analyse.
        emit: Receives log lines and trials as they come.
        known: Trials from an earlier attempt at the same request, which are not repeated.
        traced: Returns the traces of a prediction; ``None`` traces again each time.
        measured: Steps that were measured elsewhere, beside those of this machine's own file.

    Raises:
        InvalidInput: If the model's config cannot be fetched or trained.
        DoesNotFit: If not even the smallest batch fits.
        MeasurementFailed: If a measured trial failed for a reason other than memory.
    """
    request = replace(request, workload=resolve(request.workload))
    used = software.of_workload(request.workload)
    for caveat in software.caveat(request.workload.software, used):
        emit(Log(caveat, "warning"))
    with blaming_the_config(request.workload):
        if request.gpu == LOCAL:
            result = analyze_measured(request, emit, _by_size(known, Source.MEASURED))
        else:
            made = _by_size(known, Source.PREDICTED)
            result = analyze_predicted(request, emit, made, traced, Experience.here(measured))
    return with_versions(result, request.workload.software, used)


def with_versions(result: AnalysisResult, wanted: str, used: dict[str, str]) -> AnalysisResult:
    """The result with the versions that it is for, and a warning where these are not wanted."""
    caveats = [*software.caveat(wanted, used), *result.caveats]
    return replace(result, software=used, caveats=caveats)


def _by_size(known: Sequence[Trial], source: Source) -> dict[int, Trial]:
    return {trial.batch_size: trial for trial in known if trial.source is source}
