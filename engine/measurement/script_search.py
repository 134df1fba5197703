"""The search for the largest batch by trials, with or without a prediction to start from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..answer.expectation import expected_limit
from ..answer.search import SearchOutcome, find_largest
from ..interface.request import MAX_BATCH_SIZE
from ..interface.trial import GpuFacts, Probe, Trial
from ..script.factory import ScriptFailed
from ..script.request import Script, ScriptRequest

_STRIDE = 4
"""Without a prediction, the next batch tried is at most this many times the one before. Memory
curves upwards, so a line through two small batches would overshoot the limit by far."""


def search_by_trials(
    request: ScriptRequest, gpu: GpuFacts, probe: Probe, predict: Probe | None
) -> SearchOutcome:
    """Find the largest batch of a script.

    Args:
        request: The current batch, which is tried first, and the batch multiple.
        gpu: The device to fit on.
        probe: Tries a batch size.
        predict: Predicts its memory; ``None`` where the script cannot be traced.

    Raises:
        ScriptFailed: If a step does not use the batch size.
    """
    multiple, limit = request.batch_multiple, gpu.usable_bytes
    known = [probe(request.known_batch_size)]
    search = partial(find_largest, batch_multiple=multiple, limit_bytes=limit)
    if predict is not None:
        guess = search(predict).largest_batch_size
        expect = expected_limit(predict, guess, batch_multiple=multiple, limit_bytes=limit)
        return search(probe, expect=expect, known=known)
    line = approach(multiple, known, probe, limit)
    if line == MAX_BATCH_SIZE // multiple * multiple:
        _check_growth(request.script, known)
    return search(probe, guess=line, known=known)


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


def _check_growth(script: Script, trials: list[Trial]) -> None:
    """Refuse steps that use the same memory at the smallest and the largest possible batch."""
    first, last = trials[0], trials[-1]
    peaks = (first.peak_allocated_bytes, last.peak_allocated_bytes)
    if len(trials) > 1 and None not in peaks and peaks[0] == peaks[1]:
        raise ScriptFailed(
            f"a step uses as much memory at batch {last.batch_size:,} as at "
            f"{first.batch_size:,}; {script.wants_data}"
        )


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
