"""The expected limit: a prediction, corrected by what trials measured.

It is pure: it sees batch sizes only through predicted and measured trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from ..interface.trial import Probe, Trial
from .search import find_largest

_PACKING = 0.01
"""Assumed: a trial this near to its prediction does not say that the prediction is wrong. How
closely the allocator packs differs by as much from one batch size to the next."""


def expected_limit(
    predict: Probe, predicted: int, *, batch_multiple: int, limit_bytes: int
) -> Callable[[Sequence[Trial]], int]:
    """Expect the largest batch where the corrected prediction meets the limit.

    Args:
        predict: Predicts the memory of a batch size.
        predicted: The largest batch that fits according to it.
        batch_multiple: Only multiples of it are expected.
        limit_bytes: Limit of the caching allocator; without one, of live tensors.

    Returns:
        The ``expect`` argument of :func:`~engine.answer.search.find_largest`.
    """
    predict = cache(predict)  # each trial asks about the same sizes again

    def expect(trials: Sequence[Trial]) -> int:
        within = _predicted_limit(_points(trials, predict), limit_bytes)
        if within == limit_bytes:
            return predicted

        def corrected(batch_size: int) -> Trial:
            trial = predict(batch_size)
            return replace(trial, fits=_peak(trial) <= within)

        return find_largest(
            corrected, batch_multiple=batch_multiple, guess=predicted, limit_bytes=within
        ).largest_batch_size

    return expect


def _predicted_limit(points: Sequence[tuple[int, int]], limit_bytes: int) -> int:
    """Predicted bytes of a batch that measures as much as the limit.

    Two trials give a line, exact where the prediction's error is a ratio, an offset, or both. One
    trial leaves open which it is, so the lower of the two limits is taken: a batch that fits then
    gives its memory, one that does not fit gives nothing.

    Args:
        points: Predicted and measured bytes of the trials that fit, by batch size.
        limit_bytes: The limit of measured bytes.
    """
    if not points:
        return limit_bytes
    (far, far_measured), (near, near_measured) = points[0], points[-1]
    run, rise = near - far, near_measured - far_measured
    by_offset = limit_bytes - (near_measured - near)
    if run > 0 and run <= 2 * rise <= 4 * run:  # else packing outweighs what the batches differ by
        return near + (limit_bytes - near_measured) * run // rise
    if abs(near_measured - near) <= _PACKING * near:
        return limit_bytes
    return min(by_offset, limit_bytes * near // near_measured)


def _points(trials: Sequence[Trial], predict: Probe) -> list[tuple[int, int]]:
    """Predicted and measured peaks of the trials that fit, by batch size.

    On Metal only the measured one is of reserved memory: the line through them is right all the
    same, since it leads from what is predicted to what is held against the limit.
    """
    fitting = sorted((one for one in trials if one.fits), key=lambda one: one.batch_size)
    pairs = [(_peak(predict(one.batch_size)), _peak(one)) for one in fitting]
    return [pair for pair in pairs if 0 not in pair]


def _peak(trial: Trial) -> int:
    """Bytes reserved, or allocated where nothing is reserved; 0 if unknown."""
    return trial.peak_reserved_bytes or trial.peak_allocated_bytes or 0
