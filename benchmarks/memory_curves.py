"""The memory curve of one workload on many GPUs, from as few traces as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from engine.answer.search import find_largest
from engine.gpus import Gpu
from engine.hub import resolve
from engine.interface.request import MAX_BATCH_SIZE
from engine.interface.trial import Trial
from engine.interface.workload import Workload
from engine.prediction.probe import predict_trial
from engine.step.building import blaming_the_config
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.shared import SharedTraces
from engine.traces.source import TraceSource
from engine.tracing.lowering import cuda_behaviour


@dataclass(frozen=True)
class GpuCurve:
    """Memory vs. batch size on one GPU.

    Attributes:
        largest_batch_size: The largest that fits; 0 if not even one sample does.
        next_batch_size_fails: Whether the next one up was tried and does not fit; false only if
            the largest allowed batch size was reached.
        points: Trials in order of batch size, from 1 to the first that does not fit.
    """

    gpu: Gpu
    largest_batch_size: int
    next_batch_size_fails: bool
    points: list[Trial]


def memory_curves(workload: Workload, gpus: Iterable[Gpu]) -> Iterator[GpuCurve]:
    """The memory curve and the largest batch of a workload, GPU by GPU.

    Args:
        workload: The workload to trace.
        gpus: The GPUs; those with the same traced behaviour share a trace.

    Raises:
        InvalidInput: If the model's config is not available, or no model can be built from it.
        NotAffine: If the step changes with the batch size.
    """
    workload = resolve(workload)
    traces = SharedTraces(lambda behaviour, _: trace_every_batch_size(workload, behaviour))
    with blaming_the_config(workload):
        for gpu in gpus:
            yield _curve(workload, gpu, traces.of(cuda_behaviour(gpu.compute_capability)))


def _curve(workload: Workload, gpu: Gpu, traces: TraceSource) -> GpuCurve:
    @cache
    def probe(batch_size: int) -> Trial:
        return predict_trial(workload, gpu, traces.at(batch_size))

    coarse: list[Trial] = []
    for batch_size in coarse_sizes(MAX_BATCH_SIZE):
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
    """The crossing of the limit and a straight line through the reserved memory of two trials.

    Returns:
        The batch size, rounded down; ``None`` without two trials of known, rising memory.
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
