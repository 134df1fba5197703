"""A person's own code measured on this machine's device, each trial in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import torch

from engine.answer.conclusion import Findings, answer
from engine.answer.search import SearchOutcome, find_largest
from engine.errors import DoesNotFit
from engine.events import Event, Log
from engine.measurement.analysis import (
    MEASURED_NOISE,
    limited_device,
    local_price_per_hour,
    recommend_timed,
)
from engine.measurement.parent import local_device, measure, record
from engine.measurement.protocol import DeviceFacts, RecordedStep, TrialOrder
from engine.own.request import OwnCodeRequest
from engine.own.trace import CannotTrace, trace_own_at_every_batch_size
from engine.prediction.analysis import curve, in_words
from engine.prediction.probe import predict_live_memory, predict_memory
from engine.request import LARGEST_BATCH_SIZE
from engine.result import AnalysisResult, GpuFacts, Source, Trial
from engine.tracing.lowering import CudaBehaviour, cuda_behaviour

_STRIDE = 4
"""Without a prediction, the next batch tried is at most so many times the one before: memory bends
upwards, so a line through two small batches alone would lead far beyond the limit."""

Emit = Callable[[Event], None]
Probe = Callable[[int], Trial]


def measure_own_code(request: OwnCodeRequest, emit: Emit) -> AnalysisResult:
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
    gpu = limited_device(device, request.memory_limit_bytes)
    predict = _predictor(request, device, gpu, emit)
    emit(Log(f"Measuring on {gpu.name}: {gpu.usable_bytes / 2**30:.2f} GiB for tensors"))

    def order(batch_size: int) -> TrialOrder:
        return TrialOrder(request.factory, batch_size, request.memory_limit_bytes)

    probe = telling(lambda batch_size: measure(order(batch_size)), emit)
    outcome = _search(request, gpu, probe, predict)
    if outcome.largest_batch_size == 0:
        raise does_not_fit(request, probe(request.batch_multiple), gpu)
    best = recommend_timed(outcome.trials, outcome.largest_batch_size, request.batch_multiple)
    step = record(order(best)) if device.kind == "cpu" else RecordedStep([], [])
    found = Findings(
        gpu=gpu,
        outcome=outcome,
        current=probe(request.current_batch_size),
        recommended=probe(best),
        curve=curve(predict, outcome, request) if predict else _by_size(outcome.trials),
        price_per_hour_usd=local_price_per_hour(request, device),
        source=Source.MEASURED,
        noise=MEASURED_NOISE,
        caveats=_caveats(predict is not None),
        timeline=step.timeline,
        largest_tensors=step.largest_tensors,
    )
    sides = (outcome.largest_batch_size, outcome.next_batch_size)
    return replace(
        answer(found, request.factory.name, request.assumptions),
        certificate=[_command(request, size) for size in sides],
    )


def telling(run: Probe, emit: Emit) -> Probe:
    """A probe that tells of each batch size when it is first tried, and tries none twice."""

    @cache
    def probe(batch_size: int) -> Trial:
        trial = run(batch_size)
        emit(trial)
        emit(Log(in_words(trial)))
        return trial

    return probe


def does_not_fit(request: OwnCodeRequest, smallest: Trial, gpu: GpuFacts) -> DoesNotFit:
    """The failure of code that does not fit at all, with what to do about it."""
    return DoesNotFit(
        f"{request.factory.name} does not fit on {gpu.name}: batch {smallest.batch_size} ends with "
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
        trace_at = trace_own_at_every_batch_size(
            request.factory, behaviour, lambda message: emit(Log(message, "warning"))
        )
        trace_at(request.batch_multiple)
    except CannotTrace as error:
        emit(Log(f"Searching without a prediction: {error.reason}", "warning"))
        return None
    if behaviour is not None:
        return lambda batch_size: predict_memory(gpu, trace_at(batch_size))
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
            return largest
        known.append(probe(min(-(-_STRIDE * size // multiple) * multiple, largest)))
    return None


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


def _command(request: OwnCodeRequest, batch_size: int) -> str:
    """The command that repeats a trial, to be given in the folder of the factory."""
    limit = request.memory_limit_bytes
    limited = f" --memory-limit {limit}" if limit is not None else ""
    factory = request.factory.name
    return f"python -m engine measure --factory {factory} --batch-size {batch_size}{limited}"
