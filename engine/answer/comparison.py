"""What trials run in turn say of a speedup: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from engine.answer.economics import Speedup
from engine.result import Comparison


def compare(current: Sequence[float], recommended: Sequence[float]) -> Comparison:
    """What came out of rounds in which each of two batches was measured once.

    Args:
        current: Samples per second at the current batch, by round.
        recommended: The same at the recommended batch.

    Raises:
        ValueError: If there are no rounds, or one lacks a side.
    """
    if not current or len(current) != len(recommended):
        raise ValueError("a comparison is of whole rounds, one at least")
    return Comparison(list(current), list(recommended), coverage(len(current)))


def speedup_in_turn(comparison: Comparison) -> Speedup:
    """The ratio of the median speeds, with the lowest and the highest ratio of a round.

    The two trials of a round run one right after the other, so whatever drifts slower than that
    (clock, heat, neighbours) is in both of them and drops out of their ratio. The ratio of the
    medians always lies between the ends.
    """
    ratios = [
        fast / slow
        for slow, fast in zip(
            comparison.current_samples_per_second,
            comparison.recommended_samples_per_second,
            strict=True,
        )
    ]
    ratio = median(comparison.recommended_samples_per_second) / median(
        comparison.current_samples_per_second
    )
    return Speedup(ratio, min(ratios), max(ratios))


def coverage(rounds: int) -> float:
    """How sure it is that the true median ratio lies between the lowest and the highest seen.

    It lies outside only if every round fell on the same side of it, which has the chance of as many
    equal tosses of a coin: 1 - 2·(1/2)^n, whatever the ratios' distribution (the interval of the
    sign test; David and Nagaraja, Order Statistics, 3rd edition, section 7.1).
    """
    return float(1 - 2.0 ** (1 - rounds))
