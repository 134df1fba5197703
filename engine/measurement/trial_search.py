"""The search for the largest batch by trials, with or without a prediction to start from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..answer.expectation import expected_limit
from ..answer.search import SearchOutcome, find_largest
from ..events import Emit, Log
from ..interface.request import MAX_BATCH_SIZE, Request
from ..interface.trial import GpuFacts, Probe, Trial

_STRIDE = 4
"""Without a prediction, the next batch tried is at most this many times the one before. Memory
curves upwards, so a line through two small batches would overshoot the limit by far."""

_SECOND = 2
"""Without a current batch, this multiple is tried beside the limit. One sample may not train."""


def search_by_trials(
    request: Request, gpu: GpuFacts, probe: Probe, predict: Probe | None, emit: Emit
) -> SearchOutcome:
    """Find the largest batch by trials, from a prediction on where there is one.

    Args:
        request: The current batch, and the batch multiple.
        gpu: The device to fit on.
        probe: Tries a batch size.
        predict: Predicts its memory; ``None`` where that cannot be predicted.
        emit: Receives log lines.
    """
    multiple, limit = request.batch_multiple, gpu.usable_bytes
    search = partial(find_largest, batch_multiple=multiple, limit_bytes=limit)
    if predict is None:
        tried = [probe(request.current_batch_size or multiple)]
        return search(probe, guess=approach(multiple, tried, probe, limit), known=tried)
    guess = search(predict).largest_batch_size
    emit(Log(f"Predicted largest batch: {guess:,}; now measuring"))
    expect = expected_limit(predict, guess, batch_multiple=multiple, limit_bytes=limit)
    first = [] if guess else [probe(multiple)]
    if not all(trial.fits for trial in first):
        return search(probe, expect=expect, known=first)
    # A second batch size that fits, for the line of step times that the recommendation follows.
    second = request.current_batch_size or _SECOND * multiple
    return search(probe, expect=expect, known=[*first, probe(second)])


def approach(multiple: int, known: list[Trial], probe: Probe, limit_bytes: int) -> int | None:
    """Try growing batches until a line through the last two meets the limit close by.

    Args:
        multiple: Only multiples of it are tried.
        known: The first trial; receives the others.
        probe: Tries a batch size.
        limit_bytes: Memory that a step may use.

    Returns:
        Where the line meets the limit; ``None`` if a batch failed before that.
    """
    largest = MAX_BATCH_SIZE // multiple * multiple
    while known[-1].fits:
        size = known[-1].batch_size
        crossing = _crossing(known[-2:], limit_bytes)
        if crossing is not None and crossing <= _STRIDE * size:
            return crossing
        if size >= largest:
            return largest
        known.append(probe(min(-(-_STRIDE * size // multiple) * multiple, largest)))
    return None


def _crossing(pair: Sequence[Trial], limit_bytes: int) -> int | None:
    """The batch size at which a straight line through two trials reaches the memory limit."""
    points = [
        (trial.batch_size, trial.peak_reserved_bytes or trial.peak_allocated_bytes or 0)
        for trial in pair
    ]
    if len(points) < 2:
        return None
    (size, used), (next_size, next_used) = points
    if next_used <= used:
        return None
    return size + (limit_bytes - used) * (next_size - size) // (next_used - used)
