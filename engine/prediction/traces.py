"""Traces for a prediction, made as rarely as possible, since tracing takes most of its time.

Two traces of a step give every batch size. GPUs that are traced alike share them, and a process
that predicts again and again keeps those of the last few workloads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Any, cast

from ..allocator.caching import DEFAULT_OPTIONS, FREE, ReplayResult
from ..allocator.options import AllocatorOptions
from ..events import Event, Log
from ..request import AnalysisRequest, Request
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Category, NotAffine, Trace
from ..workload import Precision, Workload
from .tracer import LOW, TraceAt, trace, trace_every_batch_size

Emit = Callable[[Event], None]
TraceRequest = Callable[[AnalysisRequest, CudaBehaviour | None, Emit], TraceAt]
"""Traces the workload of a request, as :func:`trace_request` does."""

MOST_WORKLOADS = 8
"""How many workloads keep their traces, so that changing a setting and changing it back is free."""

_WORKSPACE = "cublas_workspace_bytes"
_Call = tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]


def trace_workload(workload: Workload, behaviour: CudaBehaviour | None, emit: Emit) -> TraceAt:
    """Trace a workload at every batch size: from two traces, or one by one where those differ.

    Args:
        workload: What is trained.
        behaviour: Of the GPU; ``None`` traces what the CPU does.
        emit: Receives log lines.
    """
    name = workload.preset.display_name
    emit(Log(f"Building {name} from its config on fake tensors, without weights"))
    try:
        trace_at = trace_every_batch_size(workload, behaviour)
    except NotAffine as error:
        emit(Log(f"{error}; tracing each batch size separately", "warning"))
        return cache(lambda batch_size: trace(workload, batch_size, behaviour))
    step = trace_at(2)
    emit(
        Log(
            f"Traced two training steps at two batch sizes: {len(step.operations):,} operations a "
            f"step, {len(step.sizes):,} tensors, each linear in the batch size"
        )
    )
    return trace_at


def trace_request(request: AnalysisRequest, behaviour: CudaBehaviour | None, emit: Emit) -> TraceAt:
    """Trace the workload of a request; see :func:`trace_workload`."""

    def trace_with(accumulation: int) -> TraceAt:
        workload = replace(request.workload, gradient_accumulation=accumulation)
        return trace_workload(workload, behaviour, emit)

    return by_accumulation(request, trace_with)


def by_accumulation(request: Request, trace_with: Callable[[int], TraceAt]) -> TraceAt:
    """Traces of a step that accumulates gradients at some batch sizes only.

    Args:
        request: Says how many micro-batches a step has at a batch size.
        trace_with: Traces a step of 1 micro-batch, or of 2, which stand for any larger number:
            from the second one on, each is like the one before.
    """
    trace_with = cache(trace_with)
    return lambda batch_size: trace_with(min(request.accumulation_at(batch_size), 2))(batch_size)


class SharedTraces:
    """Traces of one workload, shared by all GPUs that are traced alike.

    What a trace depends on is what it looked up in the GPU's behaviour. So each trace records its
    look-ups, and a GPU for which they all give the same result shares it.

    Args:
        trace_every: Traces the workload at every batch size, given a GPU's behaviour.
    """

    def __init__(self, trace_every: Callable[[CudaBehaviour], TraceAt]) -> None:
        self._trace_every = trace_every
        self._families: list[_Family] = []

    def of(self, behaviour: CudaBehaviour) -> TraceAt:
        """The traces for a GPU's behaviour; what every batch size needs is traced at once."""
        self._at(behaviour, LOW)
        return cache(lambda batch_size: self._at(behaviour, batch_size))

    def _at(self, behaviour: CudaBehaviour, batch_size: int) -> Trace:
        workspace_bytes = getattr(behaviour, _WORKSPACE)
        for family in self._families:
            if family.includes(behaviour):
                trace = family.trace_at(workspace_bytes)(batch_size)
                # A batch size with a trace of its own, such as 1, may add look-ups that differ.
                if family.includes(behaviour):
                    return trace
        recording = _RecordingBehaviour(behaviour)
        traced = self._trace_every(cast(CudaBehaviour, recording))
        self._families.append(_Family(recording.lookups, traced, workspace_bytes))
        return self._families[-1].trace_at(workspace_bytes)(batch_size)


class _RecordingBehaviour:
    """A GPU's behaviour that records every look-up and its result."""

    def __init__(self, behaviour: CudaBehaviour) -> None:
        self._behaviour = behaviour
        self.lookups: dict[_Call, Any] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._behaviour, name)
        if not callable(value):
            self.lookups[name, (), ()] = value
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            result = self.lookups[name, args, tuple(kwargs.items())] = value(*args, **kwargs)
            return result

        return call


@dataclass
class _Family:
    """GPUs that are traced alike, except for the size of their cuBLAS workspaces."""

    lookups: dict[_Call, Any]
    traced: TraceAt
    workspace_bytes: int
    _by_workspace: dict[int, TraceAt] = field(default_factory=dict)

    def includes(self, behaviour: CudaBehaviour) -> bool:
        """Whether a trace with this behaviour would come out the same."""
        for (name, args, kwargs), result in self.lookups.items():
            value = getattr(behaviour, name)
            if callable(value):
                value = value(*args, **dict(kwargs))
            if name != _WORKSPACE and value != result:
                return False
        return True

    def trace_at(self, workspace_bytes: int) -> TraceAt:
        """The traces with cuBLAS workspaces of this size; each batch size is replayed once."""
        if workspace_bytes not in self._by_workspace:

            @cache
            def at(batch_size: int) -> Trace:
                trace = self._resized(self.traced(batch_size), workspace_bytes)
                return _Replayed(**{name.name: getattr(trace, name.name) for name in fields(Trace)})

            self._by_workspace[workspace_bytes] = at
        return self._by_workspace[workspace_bytes]

    def _resized(self, trace: Trace, workspace_bytes: int) -> Trace:
        if workspace_bytes == self.workspace_bytes:
            return trace
        freed = {tensor for kind, tensor in trace.events if kind == FREE}
        sizes = [
            workspace_bytes
            if size == self.workspace_bytes
            and category is Category.WORKSPACES
            and tensor not in freed
            else size
            for tensor, (size, category) in enumerate(
                zip(trace.sizes, trace.categories, strict=True)
            )
        ]
        return replace(trace, sizes=sizes)


class _Replayed(Trace):
    """A trace that caches its replay without a limit by an allocator with default options."""

    @cached_property
    def _unlimited(self) -> ReplayResult:
        return super().replay()

    @cached_property
    def _peak(self) -> tuple[int, dict[str, int]]:
        return super().peak_by_category()

    def replay(
        self, capacity_bytes: int | None = None, options: AllocatorOptions = DEFAULT_OPTIONS
    ) -> ReplayResult:
        if capacity_bytes is None and options == DEFAULT_OPTIONS:
            return self._unlimited
        return super().replay(capacity_bytes, options)

    def peak_by_category(self) -> tuple[int, dict[str, int]]:
        peak, categories = self._peak
        return peak, dict(categories)


class KeptTraces:
    """Keeps the traces of the last few workloads; a :data:`TraceRequest`.

    Users predict the same workload on one GPU after another, and at one batch size after another.

    Args:
        most: How many workloads are kept, which bounds the memory they take.
    """

    def __init__(self, most: int = MOST_WORKLOADS) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[Workload, int | None], SharedTraces] = OrderedDict()
        self._traced = False
        self._emit: Emit = lambda _: None

    def __call__(
        self, request: AnalysisRequest, behaviour: CudaBehaviour | None, emit: Emit
    ) -> TraceAt:
        """The traces of a request's workload; nothing is kept where tracing fails."""
        if behaviour is None:
            return trace_request(request, behaviour, emit)
        shared = self._shared(request)
        self._emit, self._traced = emit, False
        trace_at = shared.of(behaviour)
        if not self._traced:
            emit(Log("The same training step was traced before; reusing its traces"))
        return trace_at

    def _shared(self, request: AnalysisRequest) -> SharedTraces:
        """The traces of the request's workload, now the most recently used."""
        if request.workload.precision is Precision.TF32:  # products run faster, and nothing else
            same = replace(request.workload, precision=Precision.FP32)
            request = replace(request, workload=same)
        key = (request.workload, request.global_batch_size)
        if key not in self._kept:
            self._kept[key] = SharedTraces(lambda other: self._trace(request, other))
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return self._kept[key]

    def _trace(self, request: AnalysisRequest, behaviour: CudaBehaviour) -> TraceAt:
        self._traced = True
        return trace_request(request, behaviour, lambda event: self._emit(event))
