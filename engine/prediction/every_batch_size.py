"""The traces of a workload at every batch size, from those at a few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import AffineTrace, QuadraticTrace, Trace, one_sample
from ..workload import Workload
from .depths import Depths
from .tracer import TraceAt

LOW, HIGH = 2, 3
# The two batch sizes that give all others from 2 up. A batch of 1 is traced by itself: with a
# dimension of 1, tensors are contiguous or broadcast as they are at no other size.


@dataclass
class EveryBatchSize:
    """A few traces of a workload that give every batch size; a :data:`TraceAt`.

    Attributes:
        traces: Give all from 2 up.
        each: Traces one batch size by itself; it is not pickled.
        single: The trace of batch 1, made once it is needed; ``None`` before.
        how: How they were made, as the end of a sentence.
        margin: :attr:`Depths.margin`.
    """

    traces: AffineTrace | QuadraticTrace
    each: TraceAt | None = None
    single: Trace | None = None
    how: str = ""
    margin: int = 0

    def __call__(self, batch_size: int) -> Trace:
        if batch_size > 1:
            return self.traces.at(batch_size)
        if self.single is None:
            if self.each is None:
                raise ValueError("nothing traces batch 1")
            self.single = one_sample(self.each, self.traces.at(LOW))
        return self.single

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"each": None}


def trace_every_batch_size(
    workload: Workload,
    behaviour: CudaBehaviour | None,
    progress: Callable[[float], object] = lambda _: None,
    rank: int = 0,
) -> EveryBatchSize:
    """Trace a few batch sizes that give all others from 2 up; batch 1 is traced when needed.

    Args:
        workload: What is trained.
        behaviour: Of the GPU.
        progress: Told before each trace which fraction of them is done.
        rank: Of the GPU among those that share the work.

    Raises:
        NotAffine: If the step does other things at other batch sizes.
    """
    each = Depths(workload, behaviour, rank=rank)
    is_quadratic = workload.task is not None and workload.task.facts.compares_samples
    sizes = (LOW, HIGH, HIGH + 1) if is_quadratic else (LOW, HIGH)
    traces = []
    for number, batch_size in enumerate(sizes):
        progress(number / len(sizes))
        traces.append(each(batch_size))
    if is_quadratic:
        return EveryBatchSize(QuadraticTrace(*traces), each, None, each.how, each.margin)
    return EveryBatchSize(AffineTrace(*traces), each, None, each.how, each.margin)
