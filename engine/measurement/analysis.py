"""The analysis of the local device: a prediction gives the guess, measured trials the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from engine.allocator.options import AllocatorOptions
from engine.answer.conclusion import Findings, conclude
from engine.answer.recommendation import Bound, Recommendation, micro_batches, recommend_batch
from engine.answer.search import SearchOutcome, find_largest, fit_step_time, recommend
from engine.errors import MeasurementFailed
from engine.events import Event, Log
from engine.measurement.device import device_for, local_price_per_hour
from engine.measurement.parent import local_device, measure, measured_on, record
from engine.measurement.protocol import DeviceFacts, RecordedStep, TrialOrder
from engine.measurement.rounds import about_rounds, comparable, measure_in_turn
from engine.models.hub import resolve
from engine.prediction.analysis import curve, does_not_fit, request_traces, telling
from engine.prediction.probe import predict_live_memory, predict_memory
from engine.request import AnalysisRequest, Question
from engine.result import AnalysisResult, GpuFacts, MeasuredOn, Source, Trial
from engine.tracing.lowering import CudaBehaviour, cuda_behaviour

MEASURED_NOISE = 0.05
"""Assumed: medians of two fresh processes that did not run in turn differ by up to so much."""

Emit = Callable[[Event], None]
Probe = Callable[[int], Trial]
_Answer = TypeVar("_Answer")


def analyze_measured(
    request: AnalysisRequest, emit: Emit, known: Mapping[int, Trial] = MappingProxyType({})
) -> AnalysisResult:
    """Measure the answer on this machine's device.

    Args:
        request: The question; its GPU is ``local``.
        emit: Receives log lines and trials as they come.
        known: By batch size, measured trials of the same request that need not be made again.

    Raises:
        InvalidInput: If the memory limit is missing where it is needed, or more than there is.
        DoesNotFit: If not even the smallest batch does.
        MeasurementFailed: If a trial ended for another reason than memory.
    """
    device = local_device()
    gpu = device_for(request, device, request.workload)
    emit(Log(f"Measuring on {gpu.name}: {gpu.usable_bytes / 2**30:.2f} GiB for tensors"))
    predict = _predictor(request, device, gpu, emit)

    def order(batch_size: int) -> TrialOrder:
        workload = request.workload_at(batch_size)
        limit = request.memory_limit_bytes
        return TrialOrder(workload, batch_size, limit, allocator=request.allocator)

    probe = telling(lambda batch_size: measure(order(batch_size)), emit, known)
    search = partial(
        find_largest, batch_multiple=request.batch_multiple, limit_bytes=gpu.usable_bytes
    )
    guess = search(predict).largest_batch_size
    emit(Log(f"Predicted largest batch: {guess:,}; now measuring"))
    first = [] if guess else [probe(request.batch_multiple)]
    if not all(trial.fits for trial in first):
        raise does_not_fit(request, predict(request.batch_multiple), gpu.name)
    needed = [*first, probe(request.current_batch_size)]
    outcome = search(probe, guess=guess, known=needed)
    if outcome.largest_batch_size == 0:
        raise does_not_fit(request, predict(request.batch_multiple), gpu.name)
    chosen = recommend_measured(request, outcome)
    found = findings(request, outcome, chosen, On(device, gpu), order, probe, emit)
    caveats = [*_caveats(request, device), *found.caveats]
    return conclude(
        request, replace(found, curve=curve(predict, outcome, request), caveats=caveats)
    )


@dataclass(frozen=True)
class On:
    """What is measured on: the device as it is, and as the question has it."""

    device: DeviceFacts
    gpu: GpuFacts


def findings(
    request: Question,
    outcome: SearchOutcome,
    chosen: Recommendation,
    on: On,
    order: Callable[[int], TrialOrder],
    probe: Probe,
    emit: Emit,
) -> Findings:
    """What follows a certified limit, whatever is trained: speed in turn, and where memory goes.

    Args:
        request: The question.
        outcome: Where the limit is.
        chosen: The recommended batch.
        on: The device.
        order: For the trial of a batch size.
        probe: Runs it, unless it has been tried before.
        emit: Receives log lines.

    Returns:
        Without a curve, and with those caveats only that are about the comparison.
    """
    current, recommended = probe(request.current_batch_size), probe(chosen.batch_size)
    comparison = measure_in_turn(lambda size: measure(order(size)), current, recommended, emit)
    compared = about_rounds(comparison, MEASURED_NOISE) if comparable(current, recommended) else []
    step = _recorded(order(chosen.batch_size), on.device, emit)
    return Findings(
        gpu=on.gpu,
        outcome=outcome,
        current=current,
        recommended=_with_breakdown(recommended, step),
        curve=(),
        price_per_hour_usd=local_price_per_hour(request, on.device),
        source=Source.MEASURED,
        noise=MEASURED_NOISE,
        comparison=comparison,
        measured_on=_ran_on(order(chosen.batch_size), emit),
        bound=chosen.bound,
        caveats=compared,
        timeline=step.timeline,
        largest_tensors=step.largest_tensors,
    )


def _recorded(order: TrialOrder, device: DeviceFacts, emit: Emit) -> RecordedStep:
    """Where memory goes along a step; nothing where the device does not tell.

    Metal keeps no history of its memory, and several GPUs make tensors that no recorder sees.
    """
    nothing = RecordedStep([], [])
    if device.kind == "mps" or (device.kind == "cuda" and order.world_size > 1):
        return nothing
    return _told(lambda: record(order), "where memory goes along a step", emit) or nothing


def _ran_on(order: TrialOrder, emit: Emit) -> MeasuredOn | None:
    return _told(lambda: measured_on(order), "what the trials ran on", emit)


def _told(ask: Callable[[], _Answer], what: str, emit: Emit) -> _Answer | None:
    """An answer that adds to a measurement; its failure takes nothing from what is certified."""
    try:
        return ask()
    except MeasurementFailed as error:
        emit(Log(f"It is not known {what}: {error}", "warning"))
        return None


def _with_breakdown(trial: Trial, step: RecordedStep) -> Trial:
    """The trial with the breakdown of a recorded step, if it has none of its own.

    The allocator rounds each tensor up, so its peak lies a little above their sum; the difference
    goes to the activations, by far the most tensors, as in predictions.
    """
    if trial.breakdown or not step.breakdown or trial.peak_allocated_bytes is None:
        return trial
    rounded = trial.peak_allocated_bytes - sum(step.breakdown.values())
    activations = step.breakdown["activations"] + rounded
    return replace(trial, breakdown=step.breakdown | {"activations": activations})


def measure_batch(
    request: AnalysisRequest, emit: Emit
) -> tuple[GpuFacts, Trial, MeasuredOn | None]:
    """Measure one batch size, the request's current one, on the local device.

    Args:
        request: The question; its GPU is ``local``.
        emit: Receives log lines.

    Returns:
        The device, the trial, and what it ran on if it fits.

    Raises:
        InvalidInput: If the memory limit is missing where it is needed, or the model is unknown.
        MeasurementFailed: If the trial ended for another reason than memory.
    """
    device = local_device()
    gpu = device_for(request, device, request.workload)
    order = TrialOrder(
        resolve(request.workload), request.current_batch_size, request.memory_limit_bytes
    )
    order = replace(order, allocator=request.allocator)
    trial = measure(order)
    if not trial.fits:
        return gpu, trial, None
    if not trial.breakdown:
        trial = _with_breakdown(trial, _recorded(order, device, emit))
    return gpu, trial, _ran_on(order, emit)


def _predictor(request: AnalysisRequest, device: DeviceFacts, gpu: GpuFacts, emit: Emit) -> Probe:
    """Predicts the memory of a batch on this device, for the first guess and for the chart."""
    behaviour: CudaBehaviour | None = None
    if device.kind == "cuda":
        behaviour = cuda_behaviour(device.compute_capability)
    trace_at = request_traces(request, behaviour, emit)
    if device.kind == "cuda":
        options = AllocatorOptions.parse(request.allocator)
        return lambda batch_size: predict_memory(gpu, trace_at(batch_size), options)
    return lambda batch_size: predict_live_memory(gpu.usable_bytes, trace_at(batch_size))


def recommend_measured(request: Question, outcome: SearchOutcome) -> Recommendation:
    """The fastest that memory and global batch allow, or the smallest that comes near."""
    largest = outcome.largest_batch_size
    if request.global_batch_size is None:
        fast = recommend_timed(outcome.trials, largest, request.batch_multiple)
        return Recommendation(fast, Bound.SPEED)
    sizes = micro_batches(request, largest)
    times = [
        (trial.batch_size, trial.step_seconds / request.accumulation_at(trial.batch_size))
        for trial in outcome.trials
        if trial.step_seconds
    ]
    if len({batch_size for batch_size, _ in times}) < 2:
        return Recommendation(sizes[-1], Bound.GLOBAL_BATCH)
    alpha, beta = fit_step_time(times)
    return recommend_batch(sizes, lambda size: size / (alpha + beta * size), largest, largest)


def recommend_timed(trials: Sequence[Trial], largest: int, multiple: int) -> int:
    """The smallest batch within 5 % of the best speed, by a line through the measured times."""
    times = [(trial.batch_size, trial.step_seconds) for trial in trials if trial.step_seconds]
    if len({batch_size for batch_size, _ in times}) < 2:
        return largest
    alpha, beta = fit_step_time(times)
    sizes = range(multiple, largest + 1, multiple)
    return recommend(((size, size / (alpha + beta * size)) for size in sizes), largest, multiple)


def _caveats(request: AnalysisRequest, device: DeviceFacts) -> list[str]:
    caveats = [
        "Each trial ran in a process of its own: whole training steps, two to warm up and up to "
        "five timed. The curve between the trials is predicted.",
    ]
    if device.kind == "cpu":
        caveats.append(
            "On the CPU the bytes of live tensors are counted against the memory limit; there is "
            "no caching allocator, so nothing is reserved beyond them."
        )
    if request.workload.world_size > 1:
        caveats.append(
            f"{request.workload.world_size:,} processes shared each trial, each "
            + ("a GPU" if device.kind == "cuda" else "with a share of the cores, by Gloo")
            + ": batch sizes and memory are of one of them, the one that needs most; times are the "
            "slowest's, samples per second of all."
        )
    if local_price_per_hour(request, device) == 0:
        caveats.append("No price is known for this device, so savings are counted in hours only.")
    return caveats
