"""Traces for a prediction, made as rarely as possible, since tracing takes most of its time.

Two traces of a step give every batch size. GPUs that are traced alike share them, a process that
predicts again and again keeps those of the last few workloads, and all processes share a folder.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from types import EllipsisType
from typing import Any

from ..core.choices import Batching, Precision
from ..events import Emit, Log, Stage
from ..gpus import Gpu
from ..interface.request import AnalysisRequest
from ..interface.workload import Workload
from ..tracing.every_batch import NotAffine
from ..tracing.lowering import CudaBehaviour, behaviour_of
from .batch_rule import LOW, trace_every_batch_size
from .lengths import OfEveryLength
from .pipeline_stages import FullestStage, candidates
from .shallow_models import ShallowModels
from .shared import CachedOnDisk, SharedTraces
from .source import Alone, ByMicroBatches, Kept, TraceSource
from .trace_files import TraceFiles, trace_files
from .tracer import WholeModel

MAX_WORKLOADS = 8
"""Workloads that keep their traces, so that changing a setting and changing it back is free."""


def trace_workload(
    workload: Workload, behaviour: CudaBehaviour | None, emit: Emit, margin: int | None = None
) -> TraceSource:
    """Trace a workload at every batch size: from two traces, or one by one where those differ.

    Args:
        workload: The workload.
        behaviour: Behaviour of the GPU; ``None`` traces what the CPU does.
        emit: Receives log lines.
        margin: :attr:`BatchRule.margin` of another GPU, where one was traced: whether blocks repeat
            does not depend on it, so that is not checked again.
    """
    if workload.batching is not Batching.FIXED:
        return OfEveryLength(workload, partial(_trace_length, behaviour=behaviour, emit=emit))
    return _trace_length(workload, behaviour, emit, margin)


def _trace_length(
    workload: Workload, behaviour: CudaBehaviour | None, emit: Emit, margin: int | None = None
) -> TraceSource:
    """The same for samples of one length."""
    name = workload.preset.display_name
    emit(Log(f"Building {name} from its config on fake tensors, without weights"))
    emit(Stage("build"))
    if workload.pipeline_parallel == 1:
        return _trace_rank(workload, behaviour, emit, margin=margin)
    gpus = workload.world_size // workload.pipeline_parallel
    stages = {
        stage: _trace_rank(workload, behaviour, emit, stage * gpus)
        for stage in candidates(workload)
    }
    return Kept(FullestStage(workload, stages))


def _trace_rank(
    workload: Workload,
    behaviour: CudaBehaviour | None,
    emit: Emit,
    rank: int = 0,
    margin: int | None = None,
) -> TraceSource:
    each = ShallowModels(WholeModel(workload, behaviour, rank), margin)
    try:
        rule = trace_every_batch_size(
            workload, behaviour, lambda fraction: emit(Stage("trace", fraction)), rank, each
        )
    except NotAffine as error:
        emit(Log(f"{error}; tracing each batch size separately", "warning"))
        return Kept(Alone(each))
    step, made = rule.at(LOW), len(fields(rule.traces))
    emit(
        Log(
            f"Traced two training steps at {made} batch sizes, {rule.how}: "
            f"{len(step.operations):,} operations a step, {len(step.sizes):,} tensors, "
            f"{rule.traces.rule}"
        )
    )
    return rule


def trace_request(
    request: AnalysisRequest, behaviour: CudaBehaviour | None, emit: Emit
) -> ByMicroBatches:
    """Trace the workload of a request; see :func:`trace_workload`."""
    return ByMicroBatches(request, partial(_trace_accumulating, request, behaviour, emit))


def _trace_accumulating(
    request: AnalysisRequest, behaviour: CudaBehaviour | None, emit: Emit, micro_batches: int
) -> TraceSource:
    workload = replace(request.workload, gradient_accumulation=micro_batches)
    return trace_workload(workload, behaviour, emit)


class KeptTraces:
    """Keeps the traces of the last few workloads, and those of more on disk.

    Users predict the same workload on one GPU after another, at one batch size after another, and
    in one process after another.

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({[*self._kept.values()]!r})"

    def of(
        self, request: AnalysisRequest, behaviour: CudaBehaviour | None, emit: Emit
    ) -> ByMicroBatches:
        """The traces of a request's workload; nothing is kept where tracing fails."""
        if behaviour is None:
            return trace_request(request, behaviour, emit)
        self._emit, self._traced = emit, False
        found = ByMicroBatches(request, partial(self._accumulating, request, behaviour))
        batch_size = request.current_batch_size or request.batch_multiple
        found.source_at(batch_size)  # fails now, if it does
        if not self._traced:
            emit(Log("The same training step was traced before; reusing its traces"))
        return found

    def groups(
        self, request: AnalysisRequest, gpus: Iterable[Gpu], begun: Sequence[Gpu] = ()
    ) -> list[list[Gpu]]:
        """GPUs in groups that one process each predicts.

        Those that are traced alike and were not traced yet stay together and come first: several
        processes would all trace the same. The others make as many groups as there are compute
        capabilities, those with the most memory first, as that takes longer to fill. Those that
        are being traced come last, for their traces to be there by then.

        Args:
            request: The request for any of them.
            gpus: The GPUs.
            begun: GPUs that a process is tracing, all of them alike.
        """
        batch_size = request.current_batch_size or request.batch_multiple
        shared = self._shared(
            _with_micro_batches(request, request.micro_batches_traced(batch_size))
        )
        being_traced = [shared.kind_of(behaviour_of(gpu)) for gpu in begun[:1]]
        groups: dict[tuple[int, Hashable], list[Gpu]] = {}
        for gpu in gpus:
            kind = shared.kind_of(behaviour_of(gpu))
            turn = 1 if kind.is_traced else 2 if kind in being_traced else 0
            alike = gpu.compute_capability if turn else kind.decisions
            groups.setdefault((turn, alike), []).append(gpu)
        return [
            group
            for _, group in sorted(
                groups.items(),
                key=lambda one: (one[0][0], -sum(gpu.total_bytes for gpu in one[1])),
            )
        ]

    def _accumulating(
        self, request: AnalysisRequest, behaviour: CudaBehaviour, micro_batches: int
    ) -> TraceSource:
        return self._shared(_with_micro_batches(request, micro_batches)).of(behaviour)

    def _shared(self, workload: Workload) -> SharedTraces:
        """The traces of a workload, now the most recently used."""
        if workload not in self._kept:
            on_disk = self._files and CachedOnDisk(workload, self._files, self._warn)
            self._kept[workload] = SharedTraces(partial(self._trace, workload), on_disk or None)
        self._kept.move_to_end(workload)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return self._kept[workload]

    def _trace(
        self, workload: Workload, behaviour: CudaBehaviour, margin: int | None
    ) -> TraceSource:
        self._traced = True
        return trace_workload(workload, behaviour, lambda event: self._emit(event), margin)

    def _warn(self, message: str) -> None:
        self._emit(Log(message, "warning"))


def _with_micro_batches(request: AnalysisRequest, count: int) -> Workload:
    """The workload to trace for a request: products run faster in TF32, and nothing else does."""
    fields: dict[str, Any] = {"gradient_accumulation": count}
    if request.workload.precision is Precision.TF32:
        fields["precision"] = Precision.FP32
    return replace(request.workload, **fields)
