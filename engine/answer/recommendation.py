"""The recommended batch: fast enough, safe in memory, within the global batch."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from ..interface.request import Request
from ..interface.result import GlobalBatch
from ..interface.trial import Source
from .economics import Speedup
from .search import SearchOutcome
from .worth import Option, is_worth_it, least_speedup

ENOUGH_SPEED = 0.95
"""The share of the best speed that a batch must reach to be recommended."""

_MAX_POWER = 64
"""Above it every multiple of 8 is a friendly size, below it only powers of two."""


class Bound(StrEnum):
    """Constraint that keeps the recommended batch from the speed of larger ones."""

    SPEED = "speed"
    """Nothing: larger ones are hardly faster."""
    MEMORY = "memory"
    GLOBAL_BATCH = "global batch"


@dataclass(frozen=True)
class Recommendation:
    """The recommended batch.

    Attributes:
        batch_size: Samples per micro-batch.
        bound: ``speed`` if the fastest of the sizes to choose from reaches :data:`ENOUGH_SPEED` of
            the largest batch's speed; else what keeps them from it.
        fastest: The batch with the best speed among those that surely fit.
        foregone: Where the current batch is kept, the best of the larger ones to choose from, which
            is not worth a change; ``None`` without larger ones.
    """

    batch_size: int
    bound: Bound
    fastest: int
    foregone: Option | None = None


def recommend_batch(
    sizes: Sequence[int],
    speed: Callable[[int], float],
    *,
    current: int | None,
    largest: int,
    safe: int,
    gain_at: Callable[[int], Speedup],
    source: Source,
    has_global_batch: bool = False,
) -> Recommendation:
    """The current batch, unless a size to choose from is worth a change.

    Worth a change (:func:`~engine.answer.worth.is_worth_it`) may be a larger size that surely fits.
    The smallest such size with 95% of the best speed is recommended. Where the current batch does
    not surely fit, or there is none, the smallest size with 95% of the best speed is, even if that
    is below it.

    Args:
        sizes: The batch sizes to choose from, growing, as :func:`micro_batches` gives them.
        speed: Samples per second at a batch size. Assumed to rise with it, as fixed costs are
            shared by more samples, and, where samples are compared with one another, to fall
            again from some size on.
        current: The batch used today; ``None`` if there is none yet.
        largest: The largest batch that fits.
        safe: The largest that fits even at the high end of a prediction; if neither a size nor the
            current batch is that small, the smallest size is chosen.
        gain_at: The speedup of a size over the current batch, with its interval.
        source: Source of the speeds.
        has_global_batch: Whether the sizes were chosen to keep a global batch.
    """
    safe_sizes = sizes[: bisect_right(sizes, safe)]
    kept = current if current is not None and current <= safe else None
    top = safe_sizes[_fastest(safe_sizes, speed)] if safe_sizes else sizes[0]
    known = [kept] if kept is not None else []
    fastest = max([*known, *[top] * bool(safe_sizes)], key=speed, default=top)
    bound = Bound.SPEED
    if speed(fastest) < ENOUGH_SPEED * speed(largest):
        alone = not has_global_batch or len(safe_sizes) < len(sizes)
        bound = Bound.MEMORY if alone else Bound.GLOBAL_BATCH
    least = ENOUGH_SPEED * speed(fastest)
    rising = [size for size in safe_sizes if size <= top]
    if kept is None:
        chosen = rising[bisect_left(rising, least, key=speed)] if rising else top
        return Recommendation(chosen, bound, fastest)
    larger = [size for size in rising if size > kept]
    if not (larger and speed(kept)):
        return Recommendation(kept, bound, fastest)
    least = max(least, least_speedup(source) * speed(kept))

    def is_enough(size: int) -> bool:
        return speed(size) >= least and is_worth_it(gain_at(size), source)

    if is_enough(top):
        return Recommendation(larger[bisect_left(larger, True, key=is_enough)], bound, fastest)
    best = larger[bisect_left(larger, least, key=speed)] if speed(top) >= least else top
    return Recommendation(kept, bound, fastest, Option(best, gain_at(best)))


def is_friendly(size: int) -> bool:
    """Whether people choose such a batch, and kernels take it well."""
    if size > _MAX_POWER:
        return size % 8 == 0
    return size < 8 or size.bit_count() == 1


def next_friendly(size: int) -> int:
    """The first friendly size above one."""
    return next(one for one in count(size + 1) if is_friendly(one))


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


def micro_batches(request: Request, largest: int) -> Sequence[int]:
    """The batch sizes to choose from, growing: multiples up to the limit and the global batch.

    If any of them divide the global batch evenly, only those; if any of these are friendly, only
    those.
    """
    multiple, end = request.batch_multiple, largest
    per_gpu = None
    if request.global_batch_size is not None:
        per_gpu = request.global_batch_size // request.data_parallel
        end = min(largest, per_gpu)
    least = request.least_multiple
    multiples: Sequence[int] = range(multiple, end + 1, multiple) or range(least, end + 1, least)
    if per_gpu is not None:
        multiples = [size for size in multiples if per_gpu % size == 0] or multiples
    return [size for size in multiples if is_friendly(size)] or multiples


def recommend_measured(request: Request, outcome: SearchOutcome) -> Recommendation:
    """The recommended batch after a measured search, by a line through its step times."""
    largest, current = outcome.largest_batch_size, request.current_batch_size
    sizes = micro_batches(request, largest)
    times = [
        (trial.batch_size, trial.step_seconds / request.accumulation_at(trial.batch_size))
        for trial in outcome.trials
        if trial.step_seconds
    ]
    if len({batch_size for batch_size, _ in times}) < 2:  # no line: nothing shows a gain
        kept = current if current is not None and current <= largest else sizes[-1]
        return Recommendation(kept, Bound.SPEED, kept)
    alpha, beta = fit_step_time(times)

    def speed(size: int) -> float:
        return size / (alpha + beta * size)

    def gain_at(size: int) -> Speedup:
        """Speedup by the fitted line. Whether it is sure, runs in turn show later."""
        ratio = speed(size) / speed(request.known_batch_size)
        return Speedup(ratio, ratio, ratio)

    return recommend_batch(
        sizes,
        speed,
        current=current,
        largest=largest,
        safe=largest,
        gain_at=gain_at,
        source=Source.MEASURED,
        has_global_batch=request.global_batch_size is not None,
    )


def fit_step_time(points: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Fit the step time t(b) = alpha + beta * b by least squares, with alpha, beta >= 0.

    Args:
        points: Batch sizes with the seconds of one step.

    Returns:
        ``alpha`` in seconds per step and ``beta`` in seconds per sample.

    Raises:
        ValueError: If there are fewer than two batch sizes, or a time is not positive.
    """
    timed = list(points)
    if len({batch_size for batch_size, _ in timed}) < 2:
        raise ValueError("times of at least two different batch sizes are needed")
    if not all(seconds > 0 for _, seconds in timed):
        raise ValueError("a step takes more than 0 seconds")
    mean_size = math.fsum(size for size, _ in timed) / len(timed)
    mean_seconds = math.fsum(seconds for _, seconds in timed) / len(timed)
    beta = math.fsum((b - mean_size) * (t - mean_seconds) for b, t in timed) / math.fsum(
        (b - mean_size) ** 2 for b, _ in timed
    )
    alpha = mean_seconds - beta * mean_size
    if beta < 0:
        return mean_seconds, 0.0
    if alpha < 0:
        return 0.0, math.fsum(b * t for b, t in timed) / math.fsum(b * b for b, _ in timed)
    return alpha, beta


def kept_global_batch(request: Request, batch_size: int) -> GlobalBatch | None:
    """The split that keeps the request's global batch at a batch size; ``None`` if it has none."""
    wanted = request.global_batch_size
    if wanted is None:
        return None
    accumulated = request.accumulation_at(batch_size)
    at_once = batch_size * request.data_parallel
    if accumulated == 1:
        otherwise = f"Batch {batch_size:,} is the whole global batch, so nothing is accumulated."
    else:
        samples = "1 sample" if at_once == 1 else f"{at_once:,} samples"
        otherwise = (
            f"Without accumulation, an optimizer step would see {samples} instead of "
            f"{at_once * accumulated:,}: {accumulated:,} times as many optimizer steps per epoch, "
            "each with a noisier gradient, so the learning rate would have to be retuned."
        )
    return GlobalBatch(wanted, accumulated, at_once * accumulated, otherwise)


def global_batch_caveat(request: Request, batch_size: int) -> str:
    """Effect of a batch size on the global batch, if it does not stay what it was; else empty."""
    kept = kept_global_batch(request, batch_size)
    if kept is not None:
        if kept.kept_size == kept.size:
            return ""
        return (
            f"No allowed batch divides the global batch of {kept.size:,} evenly: "
            f"{kept.gradient_accumulation:,} micro-batches of {batch_size:,} make "
            f"{kept.kept_size:,}."
        )
    current = request.current_batch_size
    if current is None or batch_size == current:
        return ""
    shared = request.gradient_accumulation * request.data_parallel
    now, then = current * shared, batch_size * shared
    changes, fewer = ("raises", "fewer") if then > now else ("lowers", "more")
    return (
        f"Batch {batch_size:,} {changes} the global batch from {now:,} to {then:,}. You will take "
        f"{fewer} optimizer steps per epoch and may need to retune the learning rate. To avoid "
        "this, set a global batch."
    )
