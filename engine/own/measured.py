"""A person's own code measured on this machine's device, each trial in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from engine.allocator.options import AllocatorOptions
from engine.answer.conclusion import Findings
from engine.answer.search import SearchOutcome, find_largest
from engine.errors import DoesNotFit
from engine.events import Event, Log
from engine.measurement.analysis import On, findings, recommend_measured
from engine.measurement.device import device_for
from engine.measurement.parent import local_device, measure
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.own.factory import OwnCodeFailed
from engine.own.request import OwnCodeRequest
from engine.own.trace import CannotTrace, trace_own_question
from engine.prediction.analysis import curve, telling
from engine.prediction.probe import predict_live_memory, predict_memory
from engine.request import LARGEST_BATCH_SIZE
from engine.result import GpuFacts, Trial
from engine.tracing.lowering import CudaBehaviour, cuda_behaviour

_STRIDE = 4
"""Without a prediction, the next batch tried is at most so many times the one before: memory bends
upwards, so a line through two small batches alone would lead far beyond the limit."""

Emit = Callable[[Event], None]
Probe = Callable[[int], Trial]


def measure_own_code(request: OwnCodeRequest, emit: Emit) -> Findings:
    """Find the largest batch by trials, led by a prediction where the code can be traced.

    Args:
        request: The question; its GPU is ``local``.
        emit: Receives log lines and trials as they come.

    Raises:
        InvalidInput: If the factory does not exist, or the memory limit is missing or too high.
        OwnCodeFailed: If the factory makes no steps.
        DoesNotFit: If not even the smallest batch does.
        MeasurementFailed: If a trial ended for another reason than memory.
    """
    device = local_device()
    gpu = device_for(request, device, None)
    predict = _predictor(request, device, gpu, emit)
    emit(Log(f"Measuring on {gpu.name}: {gpu.usable_bytes / 2**30:.2f} GiB for tensors"))

    def order(batch_size: int) -> TrialOrder:
        factory = request.factory_at(batch_size)
        limit = request.memory_limit_bytes
        return TrialOrder(factory, batch_size, limit, allocator=request.allocator)

    probe = telling(lambda batch_size: measure(order(batch_size)), emit)
    outcome = _search(request, gpu, probe, predict)
    if outcome.largest_batch_size == 0:
        raise does_not_fit(request, probe(request.batch_multiple), gpu.name)
    chosen = recommend_measured(request, outcome)
    found = findings(request, outcome, chosen, On(device, gpu), order, probe, emit)
    caveats = [*_caveats(predict is not None), *found.caveats]
    points = curve(predict, outcome, request) if predict else _by_size(outcome.trials)
    return replace(found, curve=points, caveats=caveats)


def does_not_fit(request: OwnCodeRequest, smallest: Trial, device: str) -> DoesNotFit:
    """The failure of code that does not fit at all, with what to do about it."""
    return DoesNotFit(
        f"{request.factory.name} does not fit on {device}: batch {smallest.batch_size} ends with "
        f"{smallest.failure}. Take more memory, or make the step smaller."
    )


def _predictor(
    request: OwnCodeRequest, device: DeviceFacts, gpu: GpuFacts, emit: Emit
) -> Probe | None:
    """Predicts the memory of a batch on this device; ``None`` where the code cannot be traced."""
    behaviour: CudaBehaviour | None = None
    if device.kind == "cuda":
        behaviour = cuda_behaviour(device.compute_capability)
    try:
        trace_at = trace_own_question(
            request, behaviour, lambda message: emit(Log(message, "warning"))
        )
        trace_at(request.batch_multiple)
    except CannotTrace as error:
        emit(Log(f"Searching without a prediction: {error.reason}", "warning"))
        return None
    if behaviour is not None:
        options = AllocatorOptions.parse(request.allocator)
        return lambda batch_size: predict_memory(gpu, trace_at(batch_size), options)
    return lambda batch_size: predict_live_memory(gpu.usable_bytes, trace_at(batch_size))


def _search(
    request: OwnCodeRequest, gpu: GpuFacts, probe: Probe, predict: Probe | None
) -> SearchOutcome:
    multiple, limit = request.batch_multiple, gpu.usable_bytes
    known = [probe(request.current_batch_size)]
    if predict is not None:
        guess: int | None = find_largest(
            predict, batch_multiple=multiple, limit_bytes=limit
        ).largest_batch_size
    else:
        guess = _approach(known, probe, multiple, limit)
    return find_largest(probe, batch_multiple=multiple, guess=guess, limit_bytes=limit, known=known)


def _approach(known: list[Trial], probe: Probe, multiple: int, limit_bytes: int) -> int | None:
    """Try growing batches until a line through the last two meets the limit close by.

    Args:
        known: The first trial; receives the others.
        probe: Tries a batch size.
        multiple: Of the sizes tried.
        limit_bytes: What a step may take.

    Returns:
        Where it meets the limit; ``None`` if a batch has failed before that.
    """
    largest = LARGEST_BATCH_SIZE // multiple * multiple
    while known[-1].fits:
        size = known[-1].batch_size
        meets = _where_a_line_meets(known[-2:], limit_bytes)
        if meets is not None and meets <= _STRIDE * size:
            return meets
        if size >= largest:
            _check_growth(known)
            return largest
        known.append(probe(min(-(-_STRIDE * size // multiple) * multiple, largest)))
    return None


def _check_growth(trials: list[Trial]) -> None:
    """Refuse steps that take the same memory at the smallest and the largest batch there is."""
    first, last = trials[0], trials[-1]
    peaks = (first.peak_allocated_bytes, last.peak_allocated_bytes)
    if len(trials) > 1 and None not in peaks and peaks[0] == peaks[1]:
        raise OwnCodeFailed(
            f"a step takes as much memory at batch {last.batch_size:,} as at "
            f"{first.batch_size:,}; its data must have as many samples as the batch_size that the "
            "factory is given"
        )


def _where_a_line_meets(pair: Sequence[Trial], limit_bytes: int) -> int | None:
    """The batch size at which memory, a straight line through two trials, reaches the limit."""
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


def _by_size(trials: Sequence[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda trial: trial.batch_size)


def _caveats(predicted: bool) -> list[str]:
    curve_too = " The curve between the trials is predicted." if predicted else ""
    return [
        "Each trial ran in a process of its own: the factory, two steps to warm up, and up to "
        f"five timed, with torch {torch.__version__}.{curve_too}"
    ]
