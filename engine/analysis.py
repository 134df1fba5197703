"""One analysis from question to answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.events import Event
from engine.gpus import LOCAL
from engine.measurement.analysis import analyze_measured
from engine.models.building import blaming_the_config
from engine.models.hub import resolve
from engine.prediction.analysis import TraceRequest, analyze_predicted
from engine.request import AnalysisRequest
from engine.result import AnalysisResult, Source, Trial


def analyze(
    request: AnalysisRequest,
    emit: Callable[[Event], None],
    known: Sequence[Trial] = (),
    traced: TraceRequest | None = None,
) -> AnalysisResult:
    """Answer a request: by prediction for a GPU of the catalogue, by measurement for ``local``.

    Args:
        request: The question.
        emit: Receives log lines and trials as they come.
        known: Trials from an earlier try at the same request, which are not made again.
        traced: Gives the traces of a prediction; ``None`` makes them.

    Raises:
        InvalidInput: If the model's config cannot be had, or no model can be trained of it.
        DoesNotFit: If not even the smallest batch fits.
        MeasurementFailed: If a measured trial ended for another reason than memory.
    """
    request = replace(request, workload=resolve(request.workload))
    with blaming_the_config(request.workload):
        if request.gpu == LOCAL:
            return analyze_measured(request, emit, _by_size(known, Source.MEASURED))
        return analyze_predicted(request, emit, _by_size(known, Source.PREDICTED), traced)


def _by_size(known: Sequence[Trial], source: Source) -> dict[int, Trial]:
    return {trial.batch_size: trial for trial in known if trial.source is source}
