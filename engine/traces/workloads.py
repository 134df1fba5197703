"""Traces for a prediction, made as rarely as possible, since tracing takes most of its time.

Two traces of a step give every batch size. GPUs that are traced alike share them, a process that
predicts again and again keeps those of the last few workloads, and all processes share a folder.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, partial
from types import EllipsisType
from typing import Any, cast

from ..allocator.caching import DEFAULT_OPTIONS, FREE, ReplayResult
from ..allocator.options import AllocatorOptions
from ..core.choices import Batching, Precision
from ..events import Event, Log, Stage
from ..interface.request import AnalysisRequest, Request
from ..interface.workload import Workload
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Category, NotAffine, Trace, on_threads
from .batch_rule import LOW, EveryBatchSize, trace_every_batch_size
from .fullest import FullestStage
from .lengths import OfEveryLength
from .shallow_models import Depths
from .trace_files import TraceFiles, trace_files
from .tracer import TraceAt

Emit = Callable[[Event], None]
TraceRequest = Callable[[AnalysisRequest, CudaBehaviour | None, Emit], TraceAt]
"""Traces the workload of a request, as :func:`trace_request` does."""

MAX_WORKLOADS = 8
"""Workloads that keep their traces, so that changing a setting and changing it back is free."""

_SIZED = ("cublas_workspace_bytes", "resident_threads")
"""Facts that decide sizes alone, which are set anew for another GPU."""
_Call = tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]


def trace_workload(workload: Workload, behaviour: CudaBehaviour | None, emit: Emit) -> TraceAt:
    """Trace a workload at every batch size: from two traces, or one by one where those differ.

    Args:
        workload: The workload.
        behaviour: Behaviour of the GPU; ``None`` traces what the CPU does.
        emit: Receives log lines.
    """
    if workload.batching is not Batching.FIXED:
        return OfEveryLength(workload, lambda fixed: _trace_length(fixed, behaviour, emit))
    return _trace_length(workload, behaviour, emit)


def _trace_length(workload: Workload, behaviour: CudaBehaviour | None, emit: Emit) -> TraceAt:
    """The same for samples of one length."""
    name = workload.preset.display_name
    emit(Log(f"Building {name} from its config on fake tensors, without weights"))
    emit(Stage("build"))
    if workload.pipeline_parallel > 1:
        return FullestStage(workload, lambda rank: _trace_rank(workload, behaviour, emit, rank))
    return _trace_rank(workload, behaviour, emit)


def _trace_rank(
    workload: Workload, behaviour: CudaBehaviour | None, emit: Emit, rank: int = 0
) -> TraceAt:
    each = Depths(workload, behaviour, rank=rank)
    try:
        trace_at = trace_every_batch_size(
            workload, behaviour, lambda fraction: emit(Stage("trace", fraction)), rank, each
        )
    except NotAffine as error:
        emit(Log(f"{error}; tracing each batch size separately", "warning"))
        return cache(lambda batch_size: replace(each(batch_size), alone=True))
    step, made = trace_at(LOW), len(fields(trace_at.traces))
    emit(
        Log(
            f"Traced two training steps at {made} batch sizes, {trace_at.how}: "
            f"{len(step.operations):,} operations a step, {len(step.sizes):,} tensors, "
            f"{trace_at.traces.rule}"
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
    return lambda batch_size: trace_with(request.micro_batches_traced(batch_size))(batch_size)


class SharedTraces:
    """Traces of one workload, shared by all GPUs that are traced alike.

    What a trace depends on is what it looked up in the GPU's behaviour. So each trace records its
    look-ups, and a GPU for which they all give the same result shares it.

    Args:
        trace_every: Traces the workload at every batch size, given a GPU's behaviour.
        kept: Traces of the workload on disk; ``None`` to keep none there.
    """

    def __init__(
        self, trace_every: Callable[[CudaBehaviour], TraceAt], kept: _OnDisk | None = None
    ) -> None:
        self._trace_every = trace_every
        self._kept = kept
        self._families: list[_Family] = []

    def of(self, behaviour: CudaBehaviour) -> TraceAt:
        """The traces for a GPU's behaviour; what every batch size needs is traced at once."""
        self._at(behaviour, LOW)
        return cache(lambda batch_size: self._at(behaviour, batch_size))

    def _at(self, behaviour: CudaBehaviour, batch_size: int) -> Trace:
        trace = self._known(behaviour, batch_size, self._families)
        if trace is None and self._kept is not None:
            found = self._kept.load(behaviour)
            trace = self._known(behaviour, batch_size, found)
            self._families += [one for one in found if one.includes(behaviour)]
        if trace is not None:
            return trace
        recording = _RecordingBehaviour(behaviour)
        traced = self._trace_every(cast(CudaBehaviour, recording))
        family = _Family(recording.lookups, traced, behaviour.cublas_workspace_bytes)
        self._families.append(family)
        trace = family.at(batch_size, behaviour)
        self._keep(family)
        return trace

    def _known(
        self, behaviour: CudaBehaviour, batch_size: int, families: Iterable[_Family]
    ) -> Trace | None:
        for family in families:
            if not family.includes(behaviour):
                continue
            before = family.count
            trace = family.at(batch_size, behaviour)
            if family.count > before:
                self._keep(family)
            # A batch size with a trace of its own, such as 1, may add look-ups that differ.
            if family.includes(behaviour):
                return trace
        return None

    def _keep(self, family: _Family) -> None:
        if self._kept is not None and isinstance(family.traced, EveryBatchSize):
            self._kept.save(family)


@dataclass(frozen=True)
class _OnDisk:
    """The traces of one workload on disk, for several kinds of GPU.

    Attributes:
        workload: The one that is traced.
        files: The trace files.
        warn: Receives a sentence where a file cannot be read or written.
    """

    workload: Workload
    files: TraceFiles
    warn: Callable[[str], object]

    def load(self, behaviour: CudaBehaviour) -> list[_Family]:
        """The saved families; ``behaviour`` is for what may have to be traced besides."""
        families = []
        for lookups, traced, workspace_bytes in self.files.load(self.workload, self.warn) or ():
            recording = cast(CudaBehaviour, _RecordingBehaviour(behaviour, lookups))
            traced.each = Depths(self.workload, recording, traced.margin)
            families.append(_Family(lookups, traced, workspace_bytes))
        return families

    def save(self, family: _Family) -> None:
        """Save traces beside those for other kinds of GPU."""
        saved = self.files.load(self.workload, self.warn) or []
        # Those for the same kind of GPU had fewer look-ups, or as many.
        others = [one for one in saved if not one[0].items() <= family.lookups.items()]
        traces = [*others, (family.lookups, family.traced, family.workspace_bytes)]
        self.files.save(self.workload, traces, self.warn)


class _RecordingBehaviour:
    """A GPU's behaviour that records every look-up and its result, beside earlier ones."""

    def __init__(self, behaviour: CudaBehaviour, lookups: dict[_Call, Any] | None = None) -> None:
        self._behaviour = behaviour
        self.lookups: dict[_Call, Any] = {} if lookups is None else lookups

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
    """GPUs that are traced alike, but for the sizes of cuBLAS workspaces and of sums' scratch."""

    lookups: dict[_Call, Any]
    traced: TraceAt
    workspace_bytes: int
    _by_sizes: dict[tuple[int, int], TraceAt] = field(default_factory=dict)

    def includes(self, behaviour: CudaBehaviour) -> bool:
        """Whether a trace with this behaviour would come out the same."""
        for (name, args, kwargs), result in self.lookups.items():
            value = getattr(behaviour, name)
            if callable(value):
                value = value(*args, **dict(kwargs))
            if name not in _SIZED and value != result:
                return False
        return True

    @property
    def count(self) -> int:
        """Number of traces that were made."""
        traced = self.traced
        return 2 if isinstance(traced, EveryBatchSize) and traced.single is not None else 1

    def at(self, batch_size: int, behaviour: CudaBehaviour) -> Trace:
        return self._trace_at(behaviour.cublas_workspace_bytes, behaviour.resident_threads)(
            batch_size
        )

    def _trace_at(self, workspace_bytes: int, resident_threads: int) -> TraceAt:
        """The traces with such workspaces and scratch; each batch size is replayed once."""
        sizes = workspace_bytes, resident_threads
        if sizes not in self._by_sizes:

            @cache
            def at(batch_size: int) -> Trace:
                trace = self._resized(self.traced(batch_size), workspace_bytes)
                trace = on_threads(trace, resident_threads)
                return _Replayed(**{name.name: getattr(trace, name.name) for name in fields(Trace)})

            self._by_sizes[sizes] = at
        return self._by_sizes[sizes]

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
    """Keeps the traces of the last few workloads, and those of more on disk.

    It is a :data:`TraceRequest`. Users predict the same workload on one GPU after another, at one
    batch size after another, and in one process after another.

    Args:
        most: Maximum number of workloads in memory, which bounds what they take.
        files: Traces on disk; by default as the environment says, ``None`` for none.
    """

    def __init__(
        self, most: int = MAX_WORKLOADS, files: TraceFiles | EllipsisType | None = ...
    ) -> None:
        self._most = most
        self._files = trace_files() if files is ... else files
        self._kept: OrderedDict[Workload, SharedTraces] = OrderedDict()
        self._traced = False
        self._emit: Emit = lambda _: None

    def __call__(
        self, request: AnalysisRequest, behaviour: CudaBehaviour | None, emit: Emit
    ) -> TraceAt:
        """The traces of a request's workload; nothing is kept where tracing fails."""
        if behaviour is None:
            return trace_request(request, behaviour, emit)
        self._emit, self._traced = emit, False
        trace_with = cache(lambda count: self._shared(_with_micro_batches(request, count)))
        of_request = by_accumulation(request, lambda count: trace_with(count).of(behaviour))
        batch_size = request.current_batch_size or request.batch_multiple
        today = request.micro_batches_traced(batch_size)
        trace_with(today).of(behaviour)  # fails now, if it does
        if not self._traced:
            emit(Log("The same training step was traced before; reusing its traces"))
        return of_request

    def _shared(self, workload: Workload) -> SharedTraces:
        """The traces of a workload, now the most recently used."""
        if workload not in self._kept:
            on_disk = self._files and _OnDisk(workload, self._files, self._warn)
            self._kept[workload] = SharedTraces(partial(self._trace, workload), on_disk or None)
        self._kept.move_to_end(workload)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return self._kept[workload]

    def _trace(self, workload: Workload, behaviour: CudaBehaviour) -> TraceAt:
        self._traced = True
        return trace_workload(workload, behaviour, lambda event: self._emit(event))

    def _warn(self, message: str) -> None:
        self._emit(Log(message, "warning"))


def _with_micro_batches(request: AnalysisRequest, count: int) -> Workload:
    """The workload to trace for a request: products run faster in TF32, and nothing else does."""
    fields: dict[str, Any] = {"gradient_accumulation": count}
    if request.workload.precision is Precision.TF32:
        fields["precision"] = Precision.FP32
    return replace(request.workload, **fields)
