"""The global batch of a script that accumulates, in other micro-batches.

Today's trace has two of its micro-batches or more. From the second one on each is like the one
before, so time follows from the work of one, and memory is the same with any number of them. With
one alone it is no more: it finds no gradients of an earlier one.
"""

from __future__ import annotations

from ...answer.conclusion import Findings
from ...answer.recommendation import recommend_batch
from ...gpus import Gpu
from ...interface.result import KeptBatch
from ...interface.trial import Source
from ...script.request import ScriptRequest
from ...traces.source import TraceSource
from ..limits import gain, on_a_slow_host
from ..timing.work import StepTime
from .step_time import micro_batches_of_script, work_of_script


def kept_batch(
    request: ScriptRequest, gpu: Gpu, traces: TraceSource, found: Findings
) -> KeptBatch | None:
    """The best split of today's global batch into fewer micro-batches.

    ``None`` if the script does not accumulate, its current batch does not surely fit, or no other
    split is worth a change. Where a global batch is set, the recommended batch keeps it already.

    Args:
        request: The request, for the batch sizes that the script takes.
        gpu: The GPU.
        traces: The traces of the script.
        found: The current batch, and the largest that surely fits.
    """
    today, safe = request.current_batch_size, found.safe_batch_size or 0
    if request.global_batch_size is not None or today is None or today > safe:
        return None
    count = micro_batches_of_script(request, traces.at(today))
    samples = count * today
    fewer = [samples // left for left in range(count - 1, 0, -1) if samples % left == 0]
    sizes = [size for size in fewer if _is_taken(request, size)]
    if not sizes:
        return None

    def step_time(size: int) -> StepTime:
        trace = traces.at(size)
        share = samples / size / micro_batches_of_script(request, trace)
        return work_of_script(request, gpu, trace).of_share(share).timed()

    def speed(size: int) -> float:
        return samples / traces.at(size).divided_by / step_time(size).seconds

    choice = recommend_batch(
        [today, *sizes],
        on_a_slow_host(speed, step_time),
        current=today,
        largest=max(size for size in (today, *sizes) if size <= safe),
        safe=safe,
        gain_at=lambda size: gain(today, size, speed, step_time),
        source=Source.PREDICTED,
        has_global_batch=True,
    )
    size = choice.batch_size
    if size == today:
        return None
    gained = gain(today, size, speed, step_time)
    return KeptBatch(size, samples // size, speed(size), gained.ratio, gained.low, gained.high)


def _is_taken(request: ScriptRequest, size: int) -> bool:
    return size % request.batch_multiple == 0 and size % request.least_multiple == 0
