"""Uses of the memory that the current batch leaves free, by a few traces each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch._subclasses.fake_tensor import DataDependentOutputException

from ...answer.plan import GpuOption, Room
from ...core.errors import EngineError
from ...interface.request import AnalysisRequest
from ...interface.trial import Trial
from ...interface.workload import Workload
from ...models.presets import PRESETS, Preset
from .model_ladder import ModelClimb
from .moves import least_bytes

AS_FAST = 0.95
"""The share of this GPU's speed from which another one counts as equally fast."""

MAX_TRACES = 4
"""Limit of traces for one answer; each takes seconds with a large model."""

_STEP = 512


def longest_sequence(climb: ModelClimb) -> int | None:
    """The longest sequence that surely fits at the current batch, in friendly sizes.

    Memory grows along a line, or faster where all scores of the attention are kept. So a line
    through what weights, gradients and optimizer state take and today's length rules out what is
    too long. One through a length that fits and one that does not shows where to look in between.

    Returns:
        ``None`` if none longer than today's fits, the model takes no sequence, or its samples
        have lengths of their own.
    """
    today, length = climb.today, climb.request.workload.sequence_length
    limits = climb.request.workload.preset.sequence_length
    if climb.request.workload.batching.pads:  # more would change no sample
        return None
    if length is None or limits is None or not _surely_fits(today, climb):
        return None
    fixed = least_bytes(climb.request.workload, climb.parameters)
    begin, fits, fails = (0, fixed), (length, _high(today)), None
    for _ in range(MAX_TRACES):
        most = _reached_at(begin, fits, climb.gpu.total_bytes)
        sizes = [size for size in _friendly_lengths(limits.largest) if fits[0] < size <= most]
        if fails is not None:
            sizes = [size for size in sizes if size < fails[0]]
            most = _reached_at(fits, fails, climb.gpu.total_bytes)
        if not sizes:
            break
        likely = [size for size in sizes if size <= most]
        tried = likely[-1] if likely else sizes[len(sizes) // 2]
        trial = _trial(climb, sequence_length=tried)
        if trial is None:
            break
        if _surely_fits(trial, climb):
            begin, fits = fits, (tried, _high(trial))
        else:
            fails = (tried, _high(trial))
    return fits[0] if fits[0] > length else None


def _reached_at(one: tuple[int, float], other: tuple[int, float], available: float) -> float:
    """The length at which the line through two lengths and their bytes takes what is available."""
    each = (other[1] - one[1]) / (other[0] - one[0])
    return other[0] + (available - other[1]) / each if each > 0 else math.inf


def _friendly_lengths(largest: int) -> list[int]:
    """Powers of two, and multiples of 512, up to a model's largest."""
    powers = {2**power for power in range(largest.bit_length())}
    return sorted(size for size in {*powers, *range(_STEP, largest + 1, _STEP)} if size <= largest)


def largest_sibling(climb: ModelClimb) -> str | None:
    """The largest preset of the same family that surely fits at the current batch.

    Returns:
        Its name; ``None`` if no larger one fits, or it has no family.
    """
    workload = climb.request.workload
    if not _surely_fits(climb.today, climb):
        return None
    siblings = _siblings(workload, climb.parameters)
    of_size = {one.parameters: one.name for one in reversed([*siblings])}  # the first of each
    may_fit = [
        of_size[size]
        for size in sorted(of_size, reverse=True)
        if least_bytes(workload, size) <= climb.gpu.usable_bytes
    ]
    for name in may_fit[:MAX_TRACES]:
        trial = _trial(climb, model=name, config=None)
        if trial is not None and _surely_fits(trial, climb):
            return name
    return None


def _siblings(workload: Workload, parameters: float) -> Iterator[Preset]:
    """Larger presets that are built alike."""
    family = workload.preset.config().get("model_type")
    for preset in PRESETS.values():
        alike = preset.config().get("model_type") == family and workload.task in preset.tasks
        if alike and preset.name != workload.model and preset.parameters > 1.05 * parameters:
            yield preset


def room(
    climb: ModelClimb, options: Sequence[GpuOption], sequence_length: int | None, model: str | None
) -> Room | None:
    """The room that is left; ``None`` if the current batch does not fit.

    Args:
        climb: The workload and its GPU.
        options: Every GPU.
        sequence_length: The result of :func:`longest_sequence`.
        model: The result of :func:`largest_sibling`.
    """
    today = climb.today
    if not today.fits:
        return None
    cheaper = _cheaper(climb.request, options)
    return Room(
        batch_size=today.batch_size,
        free_bytes=climb.gpu.total_bytes - (today.device_used_bytes or 0),
        sequence_length=sequence_length,
        model=model,
        model_name=PRESETS[model].display_name if model else "",
        gpu=cheaper.gpu if cheaper else None,
        gpu_name=cheaper.gpu_name if cheaper else "",
        gpu_price_per_hour_usd=cheaper.price_per_hour_usd if cheaper else None,
        runs=max(1, climb.gpu.total_bytes // max(_high(today), 1)),
    )


def _cheaper(request: AnalysisRequest, options: Sequence[GpuOption]) -> GpuOption | None:
    """The cheapest GPU that is as fast as this one."""
    own = next((one for one in options if one.gpu == request.gpu and one.fits), None)
    if own is None or own.price_per_hour_usd is None:
        return None
    enough = AS_FAST * (own.samples_per_second or 0.0)
    cheaper = [
        (one.price_per_hour_usd, one)
        for one in options
        if one.fits
        and not one.speed_is_a_guess
        and (one.samples_per_second or 0.0) >= enough
        and one.price_per_hour_usd is not None
        and one.price_per_hour_usd < own.price_per_hour_usd
    ]
    return min(cheaper, key=lambda found: found[0])[1] if cheaper else None


def _trial(climb: ModelClimb, **changed: Any) -> Trial | None:
    """The trial of the current batch of another workload; ``None`` where it cannot be trained."""
    try:
        workload = replace(climb.request.workload, **changed)
        return climb.trial_of(replace(climb.request, workload=workload))
    except (EngineError, DataDependentOutputException):
        return None


def _surely_fits(trial: Trial, climb: ModelClimb) -> bool:
    return trial.fits and _high(trial) <= climb.gpu.total_bytes


def _high(trial: Trial) -> int:
    """Device memory at the high end of its prediction."""
    return trial.device_used_high_bytes or trial.device_used_bytes or 0
