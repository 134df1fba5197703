"""Traces kept from one analysis to the next: tracing takes most of the time of a prediction.

A lab asks the same workload on one GPU after the other, and from one batch size after the other.
"""

from __future__ import annotations

from engine.events import Log
from engine.prediction.analysis import Emit, request_traces
from engine.prediction.every_gpu import SharedTraces
from engine.request import AnalysisRequest
from engine.tracing.lowering import CudaBehaviour
from engine.tracing.tracer import TraceAt
from engine.workload import Workload


class KeptTraces:
    """Traces the steps of one request after the other; takes those it has where they are alike.

    Only the last workload's are kept, so that the memory they take is bounded.
    """

    def __init__(self) -> None:
        self._kept: tuple[Workload, int | None] | None = None
        self._traces: SharedTraces | None = None
        self._traced = False
        self._emit: Emit = _nobody

    def __call__(
        self, request: AnalysisRequest, behaviour: CudaBehaviour | None, emit: Emit
    ) -> TraceAt:
        """The traces of a request's workload, as :func:`request_traces` gives them.

        Raises:
            Whatever the tracing raises; nothing is kept then.
        """
        if behaviour is None:
            return request_traces(request, behaviour, emit)
        asked = (request.workload, request.global_batch_size)
        if self._traces is None or asked != self._kept:
            self._traces = SharedTraces(lambda other: self._trace(request, other))
            self._kept = asked
        self._emit, self._traced = emit, False
        trace_at = self._traces.of(behaviour)
        if not self._traced:
            emit(
                Log("The same training step was traced for the analysis before; taking its traces")
            )
        return trace_at

    def _trace(self, request: AnalysisRequest, behaviour: CudaBehaviour) -> TraceAt:
        self._traced = True
        return request_traces(request, behaviour, lambda event: self._emit(event))


def _nobody(_event: object) -> None:
    """Hears nothing: no request has come yet."""
