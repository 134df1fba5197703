"""One analysis from question to answer."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import Event
from engine.gpus import LOCAL
from engine.measured import analyze_measured
from engine.predicted import analyze_predicted
from engine.request import AnalysisRequest
from engine.result import AnalysisResult


def analyze(request: AnalysisRequest, emit: Callable[[Event], None]) -> AnalysisResult:
    """Answer a request: by prediction for a GPU of the catalogue, by measurement for ``local``.

    Args:
        request: The question.
        emit: Receives log lines and trials as they come.

    Raises:
        DoesNotFit: If not even the smallest batch fits.
        MeasurementFailed: If a measured trial ended for another reason than memory.
    """
    if request.gpu == LOCAL:
        return analyze_measured(request, emit)
    return analyze_predicted(request, emit)
