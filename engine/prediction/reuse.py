"""Traces kept from one question to the next: tracing takes most of the time of a prediction.

A lab asks the same workload on one GPU after the other, and from one batch size after the other.
"""

from __future__ import annotations

from collections import OrderedDict

from engine.events import Log
from engine.prediction.analysis import Emit, request_traces
from engine.prediction.every_gpu import SharedTraces
from engine.request import AnalysisRequest
from engine.tracing.lowering import CudaBehaviour
from engine.tracing.tracer import TraceAt
from engine.workload import Workload

MOST_WORKLOADS = 8
"""So many are kept, so that one who changes a setting and changes it back need not wait."""


class KeptTraces:
    """Traces the steps of one request after the other; takes those it has where they are alike.

    Only the last few workloads' are kept, so that the memory they take is bounded.
    """

    def __init__(self, most: int = MOST_WORKLOADS) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[Workload, int | None], SharedTraces] = OrderedDict()
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
        shared = self._shared(request)
        self._emit, self._traced = emit, False
        trace_at = shared.of(behaviour)
        if not self._traced:
            emit(Log("The same training step was traced before; taking its traces"))
        return trace_at

    def _shared(self, request: AnalysisRequest) -> SharedTraces:
        """Those of the request's workload, which is now the last to be forgotten."""
        asked = (request.workload, request.global_batch_size)
        if asked not in self._kept:
            self._kept[asked] = SharedTraces(lambda other: self._trace(request, other))
        self._kept.move_to_end(asked)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return self._kept[asked]

    def _trace(self, request: AnalysisRequest, behaviour: CudaBehaviour) -> TraceAt:
        self._traced = True
        return request_traces(request, behaviour, lambda event: self._emit(event))


def _nobody(_event: object) -> None:
    """Hears nothing: no request has come yet."""
