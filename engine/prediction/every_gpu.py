"""Memory against batch size on many GPUs at once, from as few traces as possible.

Tracing takes most of the time of a prediction, and most GPUs of the catalogue are traced alike:
what a trace depends on is what it *asked* of the GPU's behaviour. So each trace writes its
questions down, and a GPU that would answer them alike shares it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Any, cast

from engine.allocator.caching import DEFAULT_OPTIONS, FREE, ReplayResult
from engine.allocator.options import AllocatorOptions
from engine.answer.search import find_largest
from engine.gpus import Gpu
from engine.models.building import blaming_the_config
from engine.models.hub import resolve
from engine.prediction.probe import predict_trial
from engine.request import LARGEST_BATCH_SIZE
from engine.result import Trial
from engine.tracing.lowering import CudaBehaviour, cuda_behaviour
from engine.tracing.trace import Category, Trace
from engine.tracing.tracer import LOW, TraceAt, trace_every_batch_size
from engine.workload import Workload

_WORKSPACE = "cublas_workspace_bytes"


@dataclass(frozen=True)
class GpuCurve:
    """Memory against batch size on one GPU.

    Attributes:
        gpu: Where.
        largest_batch_size: The largest that fits; 0 if not even one sample does.
        next_batch_size_fails: Whether the next one up was tried and does not fit; false only where
            the bound of all batch sizes was reached.
        points: Trials at growing batch sizes, from 1 to the first beyond the limit.
    """

    gpu: Gpu
    largest_batch_size: int
    next_batch_size_fails: bool
    points: list[Trial]


def every_gpu(workload: Workload, gpus: Iterable[Gpu]) -> Iterator[GpuCurve]:
    """The memory curve and the largest batch of one workload, GPU by GPU.

    Args:
        workload: What is trained.
        gpus: Where; those that are traced alike cost one trace together.

    Raises:
        InvalidInput: If the model's config cannot be had, or no model can be trained of it.
        NotAffine: If the step does other things at other batch sizes.
    """
    workload = resolve(workload)
    traces = SharedTraces(lambda behaviour: trace_every_batch_size(workload, behaviour))
    with blaming_the_config(workload):
        for gpu in gpus:
            yield _curve(workload, gpu, traces.of(cuda_behaviour(gpu.compute_capability)))


def _curve(workload: Workload, gpu: Gpu, trace_at: TraceAt) -> GpuCurve:
    @cache
    def probe(batch_size: int) -> Trial:
        return predict_trial(workload, gpu, trace_at(batch_size))

    coarse: list[Trial] = []
    for batch_size in coarse_sizes(LARGEST_BATCH_SIZE):
        coarse.append(probe(batch_size))
        if not coarse[-1].fits:
            break
    outcome = find_largest(
        probe,
        guess=crossing(coarse[-2:], gpu.usable_bytes),
        limit_bytes=gpu.usable_bytes,
        known=coarse,
    )
    largest = outcome.largest_batch_size
    tried = {trial.batch_size: trial for trial in outcome.trials}
    return GpuCurve(
        gpu=gpu,
        largest_batch_size=largest,
        next_batch_size_fails=outcome.next_batch_size_fails,
        points=[tried[size] for size in sorted(tried) if size <= largest + 1],
    )


def coarse_sizes(largest: int) -> Iterator[int]:
    """Batch sizes 1, 2, 3, 4, 6, 8, 12, 16, …: two to each doubling."""
    yield 1
    size = 2
    while size <= largest:
        yield size
        if size * 3 // 2 <= largest:
            yield size * 3 // 2
        size *= 2


def crossing(trials: Sequence[Trial], limit_bytes: int) -> int | None:
    """Where a straight line through two trials' reserved memory meets the limit.

    Returns:
        The batch size, rounded down; ``None`` where there are not two trials with figures.
    """
    if len(trials) < 2:
        return None
    low, high = trials[-2:]
    if low.peak_reserved_bytes is None or high.peak_reserved_bytes is None:
        return None
    rise = high.peak_reserved_bytes - low.peak_reserved_bytes
    if rise <= 0:
        return None
    run = high.batch_size - low.batch_size
    return max(1, low.batch_size + (limit_bytes - low.peak_reserved_bytes) * run // rise)


class SharedTraces:
    """Traces of one workload, shared by the GPUs that are traced alike.

    Args:
        trace_every: Traces the workload at every batch size, given a GPU's behaviour.
    """

    def __init__(self, trace_every: Callable[[CudaBehaviour], TraceAt]) -> None:
        self._trace_every = trace_every
        self._families: list[_Family] = []

    def of(self, behaviour: CudaBehaviour) -> TraceAt:
        """The traces of a GPU with this behaviour; what every batch size needs is traced now."""
        self._at(behaviour, LOW)
        return cache(lambda batch_size: self._at(behaviour, batch_size))

    def _at(self, behaviour: CudaBehaviour, batch_size: int) -> Trace:
        workspace_bytes = getattr(behaviour, _WORKSPACE)
        for family in self._families:
            if family.answers_alike(behaviour):
                trace = family.trace_at(workspace_bytes)(batch_size)
                # A batch size that is traced by itself, such as 1, may ask what none has asked yet.
                if family.answers_alike(behaviour):
                    return trace
        asked = _Asked(behaviour)
        traced = self._trace_every(cast(CudaBehaviour, asked))
        self._families.append(_Family(asked.answers, traced, workspace_bytes))
        return self._families[-1].trace_at(workspace_bytes)(batch_size)


class _Asked:
    """A behaviour that writes down what it is asked, and what it answered."""

    def __init__(self, behaviour: CudaBehaviour) -> None:
        self._behaviour = behaviour
        self.answers: dict[tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]], Any] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._behaviour, name)
        if not callable(value):
            self.answers[name, (), ()] = value
            return value

        def ask(*args: Any, **kwargs: Any) -> Any:
            answer = self.answers[name, args, tuple(kwargs.items())] = value(*args, **kwargs)
            return answer

        return ask


@dataclass
class _Family:
    """GPUs that are traced alike, but for the size of their cuBLAS workspaces."""

    answers: dict[tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]], Any]
    traced: TraceAt
    workspace_bytes: int
    _by_workspace: dict[int, TraceAt] = field(default_factory=dict)

    def answers_alike(self, behaviour: CudaBehaviour) -> bool:
        """Whether a trace with this behaviour would come out the same."""
        for (name, args, kwargs), answer in self.answers.items():
            value = getattr(behaviour, name)
            if callable(value):
                value = value(*args, **dict(kwargs))
            if name != _WORKSPACE and value != answer:
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
    """A trace that remembers its replay without a limit, by an allocator with default options."""

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
