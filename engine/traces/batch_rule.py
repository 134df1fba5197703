"""The traces of a workload at every batch size, from those at a few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..interface.workload import Workload
from ..tracing.every_batch import AffineTrace, NotAffine, QuadraticTrace, one_sample
from ..tracing.loops import LoopingTrace
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Trace
from .shallow_models import ShallowModels
from .source import TraceSource
from .tracer import WholeModel

LOW, HIGH = 2, 3
# The two batch sizes that give all others from 2 up. A batch of 1 is traced by itself: with a
# dimension of 1, tensors are contiguous or broadcast as they are at no other size.


@dataclass(eq=False)
class BatchRule:
    """A few traces of a workload that give every batch size.

    Attributes:
        traces: Give all from 2 up.
        each: Traces one batch size by itself; it is not pickled.
        single: The trace of batch 1, made once it is needed; ``None`` before.
        how: Description of their making, as the end of a sentence.
        margin: :attr:`ShallowModels.margin`.
    """

    traces: AffineTrace | LoopingTrace | QuadraticTrace = field(repr=False)
    each: TraceSource | None = None
    single: Trace | None = field(default=None, repr=False)
    how: str = ""
    margin: int = 0

    def at(self, batch_size: int) -> Trace:
        if batch_size > 1:
            return self.traces.at(batch_size)
        if self.single is None:
            if self.each is None:
                raise ValueError("nothing traces batch 1")
            self.single = one_sample(self.each.at, self.traces.at(LOW))
        return self.single

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"each": None}


def trace_every_batch_size(
    workload: Workload,
    behaviour: CudaBehaviour | None,
    progress: Callable[[float], object] = lambda _: None,
    rank: int = 0,
    each: ShallowModels | None = None,
) -> BatchRule:
    """Trace a few batch sizes that give all others from 2 up; batch 1 is traced when needed.

    Args:
        workload: The workload.
        behaviour: Behaviour of the GPU.
        progress: Called before each trace with the fraction of them that is done.
        rank: Rank of the GPU among those that share the work.
        each: Traces one batch size by itself; by default, anew.

    Raises:
        NotAffine: If the step does other things at other batch sizes.
    """
    each = each or ShallowModels(WholeModel(workload, behaviour, rank))
    is_quadratic = workload.task is not None and workload.task.facts.compares_samples
    progress(0.0)
    low = each.at(LOW)
    progress(1 / 3 if is_quadratic else 1 / 2)
    high = each.at(HIGH)
    found: AffineTrace | LoopingTrace | QuadraticTrace
    if is_quadratic:
        progress(2 / 3)
        found = QuadraticTrace(low, high, each.at(HIGH + 1))
    else:
        try:
            found = AffineTrace(low, high)
        except NotAffine:
            progress(2 / 3)
            found = LoopingTrace(low, high, each.at(HIGH + 1))
    return BatchRule(found, each, None, each.how, each.margin)


def on_a_line(each: TraceSource) -> TraceSource:
    """Every batch size from two of another source, or that source where they are not alike."""
    try:
        return BatchRule(AffineTrace(each.at(LOW), each.at(HIGH)), each)
    except NotAffine:
        return each
