"""Which batch to recommend: fast enough, safe in memory, within the global batch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.request import Question
from engine.result import GlobalBatch

ENOUGH_SPEED = 0.95
"""The share of the best speed that the recommended batch reaches."""


class Bound(StrEnum):
    """What decided the recommended batch."""

    SPEED = "speed"
    MEMORY = "memory"
    GLOBAL_BATCH = "global batch"


@dataclass(frozen=True)
class Recommendation:
    """The recommended batch.

    Attributes:
        batch_size: Samples per micro-batch.
        bound: ``speed`` if the fastest size that it was chosen among reaches :data:`ENOUGH_SPEED`
            of the largest batch's; else what keeps those from that.
    """

    batch_size: int
    bound: Bound


def recommend_batch(
    sizes: Sequence[int], speed: Callable[[int], float], largest: int, safe: int
) -> Recommendation:
    """The smallest batch within 5 % of the best speed among those that are safe in memory.

    Args:
        sizes: The batch sizes to choose from, growing, as :func:`micro_batches` gives them.
        speed: Samples per second at a batch size; taken to rise with it, as it does where fixed
            costs are shared by more samples, and, where samples are compared with one another,
            to fall again from some size on.
        largest: The largest batch that fits.
        safe: The largest that fits even at the high end of a prediction; if none of the sizes is
            that small, the smallest is chosen.
    """
    safe_sizes = sizes[: max(1, bisect_right(sizes, safe))]
    rising = safe_sizes[: _fastest(safe_sizes, speed) + 1]
    best = speed(rising[-1])
    chosen = rising[bisect_left(rising, ENOUGH_SPEED * best, key=speed)]
    if best >= ENOUGH_SPEED * speed(largest):
        return Recommendation(chosen, Bound.SPEED)
    memory = len(safe_sizes) < len(sizes)
    return Recommendation(chosen, Bound.MEMORY if memory else Bound.GLOBAL_BATCH)


def _fastest(sizes: Sequence[int], speed: Callable[[int], float]) -> int:
    """The index of the fastest size, for a speed that rises and then perhaps falls."""
    low, high = 0, len(sizes) - 1
    if high > 0 and speed(sizes[high]) >= speed(sizes[high - 1]):  # nearly always
        return high
    while low < high:
        middle = (low + high) // 2
        if speed(sizes[middle]) < speed(sizes[middle + 1]):
            low = middle + 1
        else:
            high = middle
    return low


def micro_batches(request: Question, largest: int) -> Sequence[int]:
    """The batch sizes to choose from, growing: multiples up to the limit and the global batch.

    Those that divide the global batch evenly, where there are any.
    """
    if request.global_batch_size is None:
        return range(request.batch_multiple, largest + 1, request.batch_multiple)
    per_gpu = request.global_batch_size // request.world_size
    end = min(largest, per_gpu) + 1
    multiples = range(request.batch_multiple, end, request.batch_multiple) or range(1, end)
    return [size for size in multiples if per_gpu % size == 0] or multiples


def kept_global_batch(request: Question, batch_size: int) -> GlobalBatch | None:
    """How the request's global batch is kept at a batch size; ``None`` if it has none."""
    wanted = request.global_batch_size
    if wanted is None:
        return None
    accumulated = request.accumulation_at(batch_size)
    at_once = batch_size * request.world_size
    if accumulated == 1:
        otherwise = f"Batch {batch_size:,} is the whole global batch: nothing is accumulated."
    else:
        otherwise = (
            f"Without accumulation an optimizer step sees {at_once:,} samples instead of "
            f"{at_once * accumulated:,}: {accumulated:,} times as many optimizer steps in an "
            "epoch, each with a noisier gradient, so the learning rate has to be tuned again."
        )
    return GlobalBatch(wanted, accumulated, at_once * accumulated, otherwise)


def changed_global_batch(request: Question, batch_size: int) -> str:
    """What changes with the batch size where no global batch is kept; empty if nothing does."""
    if request.global_batch_size is not None or batch_size == request.current_batch_size:
        return ""
    shared = request.gradient_accumulation * request.world_size
    now, then = request.current_batch_size * shared, batch_size * shared
    fewer = "fewer" if then > now else "more"
    return (
        f"Batch {batch_size:,} changes the global batch from {now:,} to {then:,}: {fewer} "
        "optimizer steps in an epoch, and the learning rate may have to be tuned again. Name a "
        "global batch to keep it."
    )
