"""The answer to an analysis in one sentence, for a person."""

from __future__ import annotations

from engine.answer.economics import Speedup
from engine.answer.recommendation import ENOUGH_SPEED, Bound
from engine.answer.search import SearchOutcome
from engine.result import Source

_BEST_SPEED = {
    Bound.SPEED: f"at least {100 * ENOUGH_SPEED:.0f} % of the best speed",
    Bound.MEMORY: "the best speed that is safe in memory",
    Bound.GLOBAL_BATCH: "the best speed that the global batch allows",
}


def verdict(
    outcome: SearchOutcome,
    *,
    recommended_batch_size: int,
    current_batch_size: int,
    speedup: Speedup | None,
    source: Source,
    bound: Bound = Bound.SPEED,
    safe_batch_size: int | None = None,
) -> str:
    """Say what fits, which batch to use, and what that gains.

    Args:
        outcome: Where the limit is.
        recommended_batch_size: As :func:`~engine.answer.recommendation.recommend_batch` chose it;
            not used where nothing fits.
        current_batch_size: The batch size used today.
        speedup: Speed at the recommended batch over that at the current one; ``None`` if the
            current batch does not fit.
        source: Where the figures come from.
        bound: What decided the recommended batch.
        safe_batch_size: The largest that fits even at the high end of its prediction, 0 if none
            does; ``None`` where the limit was measured.
    """
    if outcome.largest_batch_size == 0:
        return f"Not even batch {outcome.next_batch_size:,} fits ({source})."
    limit = f"Batch {outcome.largest_batch_size:,} fits"
    if outcome.next_batch_size_fails:
        limit += f", {outcome.next_batch_size:,} does not"
    else:
        limit += ", and no larger one is tried"
    advice = _advice(
        recommended_batch_size,
        current_batch_size,
        speedup,
        bound,
        safe_batch_size,
    )
    return f"{limit}; {advice} ({source})."


def _advice(
    recommended: int, current: int, speedup: Speedup | None, bound: Bound, safe: int | None
) -> str:
    yours, best_speed = f"your batch of {current:,}", _BEST_SPEED[bound]
    if safe == 0:
        likeliest = f"{recommended:,} is the likeliest to fit, as no batch is sure to"
        return likeliest if speedup is not None else f"{yours} is too large: {likeliest}"
    if speedup is None:
        return f"{yours} is too large: use {recommended:,}, which gives {best_speed}"
    if speedup.is_gain:
        return f"{recommended:,} gives {best_speed}, {speedup.ratio:.2f} times that of {yours}"
    if current == recommended:
        return f"{yours} already gives {best_speed}: no gain"
    if bound is Bound.MEMORY and safe is not None and current > safe:
        return f"{yours} is not sure to fit, and {recommended:,} gives {best_speed}: no gain"
    if current > recommended:
        return f"{yours} is larger than speed needs, as {recommended:,} gives {best_speed}: no gain"
    return f"{recommended:,} is no faster than {yours}: no gain"
