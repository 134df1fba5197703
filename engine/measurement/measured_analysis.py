"""The analysis on the local device: a prediction gives the first guess, trials the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from ..allocator.options import AllocatorOptions
from ..answer.conclusion import Findings, conclude
from ..answer.economics import Speedup, speedup, speedup_in_turn, within
from ..answer.expectation import expected_limit
from ..answer.recommendation import Recommendation, recommend_measured
from ..answer.search import SearchOutcome, find_largest
from ..answer.worth import Option, is_worth_it
from ..core.errors import EngineError, InvalidInput, MeasurementFailed
from ..core.numbers import times
from ..core.sizes import gib
from ..events import Event, Log, Stage
from ..gpus.fixed_costs import CUDNN_BYTES, fixed_costs
from ..hub import resolve
from ..interface.request import AnalysisRequest, Request
from ..interface.result import AnalysisResult, Comparison, MeasuredOn, Phase
from ..interface.trial import NO_FILES, GpuFacts, Source, StepFiles, Trial
from ..parallel.interconnect import accumulation_caveats
from ..prediction.caveats import smaller_multiple_caveat
from ..prediction.phases import phases_of, with_measured_step
from ..prediction.predicted_findings import curve, reporting_probe
from ..prediction.probe import operations_seconds, predict_live_memory, predict_memory
from ..prediction.refusals import does_not_fit
from ..step.building import cache_caveats
from ..traces.source import TraceSource
from ..traces.workloads import trace_request
from ..tracing.lowering import CudaBehaviour, behaviour_of, cuda_behaviour
from .device import device_for, in_the_catalogue, local_price_per_hour
from .parent import local_device, measure, measured_on, profile, record, snapshot
from .protocol import DeviceFacts, RecordedStep, TrialOrder
from .rounds import about_rounds, comparable, measure_in_turn
from .script_search import approach
from .trial_process import libraries

MEASURED_NOISE = 0.05
"""Assumed: medians of two fresh processes that did not run interleaved differ by up to this."""

_SECOND = 2
"""Without a current batch, this multiple is tried beside the limit. One sample may not train."""

Emit = Callable[[Event], None]
Probe = Callable[[int], Trial]
_Answer = TypeVar("_Answer")


@libraries.kept()
def analyze_measured(
    request: AnalysisRequest, emit: Emit, known: Mapping[int, Trial] = MappingProxyType({})
) -> AnalysisResult:
    """Find the batch sizes by trials on this machine's device.

    Args:
        request: The request to analyse; its GPU is ``local``.
        emit: Receives log lines and trials as they come.
        known: Measured trials of the same request, by batch size, which are not repeated.

    Raises:
        InvalidInput: If the memory limit is missing where one is needed, or exceeds the memory.
        DoesNotFit: If not even the smallest batch fits.
        MeasurementFailed: If a trial failed for a reason other than memory.
    """
    device = local_device()
    gpu = device_for(request, device, request.workload)
    emit(Log(f"Measuring on {gpu.name}: {gib(gpu.usable_bytes)} for tensors"))
    traces = _traces(request, device, emit)
    predict, unpredicted = _working(
        memory_predictor(request, device, gpu, traces), request.batch_multiple, emit
    )

    def order(batch_size: int) -> TrialOrder:
        workload = request.workload_at(batch_size)
        limit = request.memory_limit_bytes
        return TrialOrder(workload, batch_size, limit, allocator=request.allocator)

    def run(batch_size: int) -> Trial:
        trial, known = measure(order(batch_size)), in_the_catalogue(device)
        if known is None or not trial.fits or predict is None:
            return trial
        workload, step = request.workload_at(batch_size), traces.at(batch_size)
        return replace(trial, operations_seconds=operations_seconds(workload, known, step))

    emit(Stage("search"))
    probe = reporting_probe(run, emit, known)
    outcome = _search(request, gpu, predict, probe, emit)
    multiple = request.batch_multiple
    if outcome.largest_batch_size == 0 and multiple > 1:
        multiple = 1
        outcome = _search(replace(request, batch_multiple=1), gpu, predict, probe, emit)
    if outcome.largest_batch_size == 0:
        raise does_not_fit(request, predict(1) if predict else probe(1), gpu)
    chosen = recommend_measured(replace(request, batch_multiple=multiple), outcome)
    found = findings(request, outcome, chosen, On(device, gpu), order, probe, emit)
    trained = request.workload_at(chosen.batch_size)
    caveats = [
        *unpredicted,
        *_caveats(request, device, predicted=predict is not None),
        *cache_caveats(trained),
        *accumulation_caveats(trained),
        *found.caveats,
        *smaller_multiple_caveat(request, multiple),
    ]
    points = curve(predict, outcome, multiple) if predict else outcome.in_order
    phases = _phases(request, device, traces, found.recommended) if predict else []
    return conclude(request, replace(found, curve=points, caveats=caveats, phases=phases))


def _phases(
    request: AnalysisRequest, device: DeviceFacts, traces: TraceSource, trial: Trial
) -> list[Phase]:
    """The predicted phases of a training run beside its measured step; none off the catalogue."""
    gpu = in_the_catalogue(device)
    if gpu is None:  # on a CPU, the host is the device
        return []
    step = traces.at(trial.batch_size)
    predicted = phases_of(request.workload_at(trial.batch_size), gpu, step)
    return with_measured_step(predicted, trial)


def _working(predict: Probe, batch_size: int, emit: Emit) -> tuple[Probe | None, list[str]]:
    """A predictor that has been tried, so that trials answer where the engine cannot predict.

    Returns:
        ``None`` in its place if it failed, and then a caveat that says so.

    Raises:
        EngineError: If the request is at fault: trials would fail too.
    """
    try:
        predict(batch_size)
    except EngineError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        emit(Log(f"Nothing can be predicted here ({reason}); searching by trials", "warning"))
        caveat = (
            f"The prediction failed on this machine ({reason}), so the search started from the "
            "trials alone. That is a fault of MemoryMark or of a release that it does not know."
        )
        return None, [caveat]
    return predict, []


def _search(
    request: AnalysisRequest, gpu: GpuFacts, predict: Probe | None, probe: Probe, emit: Emit
) -> SearchOutcome:
    """Find the largest batch by trials, from a prediction on where there is one."""
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


@dataclass(frozen=True)
class On:
    """The device as it is, and as the request limits it."""

    device: DeviceFacts
    gpu: GpuFacts


def findings(
    request: Request,
    outcome: SearchOutcome,
    chosen: Recommendation,
    on: On,
    order: Callable[[int], TrialOrder],
    probe: Probe,
    emit: Emit,
) -> Findings:
    """Findings that follow a certified limit: interleaved speeds, and where memory goes.

    Args:
        request: The request to analyse.
        outcome: The certified limit.
        chosen: The recommended batch.
        on: The device.
        order: The trial order for a batch size.
        probe: Runs that trial, unless it was run before.
        emit: Receives log lines.

    Returns:
        Without a curve, and only with the caveats about the comparison.
    """
    size, recommended = request.current_batch_size, probe(chosen.batch_size)
    current = None if size is None else probe(size)
    comparison, compared, foregone = None, [], chosen.foregone
    if current is not None and comparable(current, recommended):
        comparison = measure_in_turn(lambda size: measure(order(size)), current, recommended, emit)
        compared = about_rounds(comparison, MEASURED_NOISE)
        gained = _gained(current, recommended, comparison)
        if gained is not None and not is_worth_it(gained, Source.MEASURED):
            compared = [_not_worth_it(current, recommended, gained, in_turn=comparison is not None)]
            foregone = Option(recommended.batch_size, gained)
            recommended, comparison = current, None
    step = _recorded(order(recommended.batch_size), on.device, emit)
    return Findings(
        gpu=on.gpu,
        outcome=outcome,
        current=current,
        recommended=_with_breakdown(recommended, step),
        fastest_batch_size=chosen.fastest,
        curve=(),
        price_per_hour_usd=local_price_per_hour(request, on.device),
        source=Source.MEASURED,
        span=within(MEASURED_NOISE),
        comparison=comparison,
        measured_on=_ran_on(order(recommended.batch_size), emit),
        bound=chosen.bound,
        caveats=compared,
        timeline=step.timeline,
        largest_tensors=step.largest_tensors,
        foregone=foregone,
    )


def _gained(current: Trial, other: Trial, comparison: Comparison | None) -> Speedup | None:
    """The measured speedup: in turn, or else of two separate trials; ``None`` if not timed."""
    if comparison is not None:
        return speedup_in_turn(comparison)
    before, after = current.samples_per_second, other.samples_per_second
    return speedup(before, after, within(MEASURED_NOISE)) if before and after else None


def _not_worth_it(current: Trial, other: Trial, gained: Speedup, *, in_turn: bool) -> str:
    how = "in turn" if in_turn else "in two separate trials"
    return (
        f"Batch {other.batch_size:,} was expected to be faster than {current.batch_size:,}. "
        f"Measured {how}, it runs at {times(gained.ratio)} the speed "
        f"({times(gained.low)} to {times(gained.high)}), which is not worth a change."
    )


def _recorded(order: TrialOrder, device: DeviceFacts, emit: Emit) -> RecordedStep:
    """Memory over a step; empty where the device cannot report it.

    Metal keeps no history of its memory, and several GPUs create tensors that no recorder sees.
    """
    nothing = RecordedStep([], [])
    if device.kind == "mps" or (device.kind == "cuda" and order.world_size > 1):
        return nothing
    return _optional(lambda: record(order), "where memory goes over a step", emit) or nothing


def _ran_on(order: TrialOrder, emit: Emit) -> MeasuredOn | None:
    return _optional(lambda: measured_on(order), "what the trials ran on", emit)


def _optional(ask: Callable[[], _Answer], what: str, emit: Emit) -> _Answer | None:
    """Optional information: if it fails, the certified result still stands."""
    try:
        return ask()
    except MeasurementFailed as error:
        emit(Log(f"Unknown {what}: {error}", "warning"))
        return None


def _with_breakdown(trial: Trial, step: RecordedStep) -> Trial:
    """The trial with the breakdown of a recorded step, unless it has its own.

    The allocator rounds each tensor up, so its peak is a little above their sum. As in predictions,
    the difference is added to the activations, which are by far the most tensors.
    """
    if trial.breakdown or not step.breakdown or trial.peak_allocated_bytes is None:
        return trial
    rounded = trial.peak_allocated_bytes - sum(step.breakdown.values())
    activations = step.breakdown["activations"] + rounded
    return replace(trial, breakdown=step.breakdown | {"activations": activations})


@libraries.kept()
def measure_batch(
    request: AnalysisRequest, emit: Emit, files: StepFiles = NO_FILES
) -> tuple[GpuFacts, Trial, MeasuredOn | None]:
    """Measure one batch size, the request's current one, on the local device.

    Args:
        request: The request to analyse; its GPU is ``local``.
        emit: Receives log lines.
        files: Files to write of a trial like it.

    Returns:
        The device, the trial and, if it fits, what it ran on.

    Raises:
        InvalidInput: If the batch size is missing, or the memory limit where it is needed, or the
            model is unknown.
        MeasurementFailed: If the trial failed for a reason other than memory.
    """
    batch_size = request.known_batch_size  # asked first: finding the device takes seconds
    device = local_device()
    gpu = device_for(request, device, request.workload)
    order = TrialOrder(resolve(request.workload), batch_size, request.memory_limit_bytes)
    order = replace(order, allocator=request.allocator)
    trial = measured_with_files(order, device, files, emit)
    if not trial.fits:
        return gpu, trial, None
    if not trial.breakdown:
        trial = _with_breakdown(trial, _recorded(order, device, emit))
    return gpu, trial, _ran_on(order, emit)


def measured_with_files(
    order: TrialOrder, device: DeviceFacts, files: StepFiles, emit: Emit
) -> Trial:
    """Run a trial, and one more for each file; a step that does not fit has no trace.

    Raises:
        InvalidInput: If the device has no CUDA caching allocator.
        MeasurementFailed: If a trial failed for a reason other than memory.
    """
    if files.snapshot is not None and device.kind != "cuda":
        message = f"{device.name} has no CUDA caching allocator; `predict` writes a predicted one"
        raise InvalidInput({"memory_snapshot": message})
    trial = measure(order)
    if files.snapshot is not None:
        emit(Log("Running the steps once more for the memory snapshot"))
        snapshot(order, files.snapshot)
    if files.chrome is not None and trial.fits:
        emit(Log("Running the steps once more for the profiler's trace"))
        profile(order, files.chrome)
    return trial


def _traces(request: AnalysisRequest, device: DeviceFacts, emit: Emit) -> TraceSource:
    behaviour: CudaBehaviour | None = None
    if device.kind == "cuda":
        known = in_the_catalogue(device)
        behaviour = behaviour_of(known) if known else cuda_behaviour(device.compute_capability)
    return trace_request(request, behaviour, emit)


def memory_predictor(
    request: Request, device: DeviceFacts, gpu: GpuFacts, traces: TraceSource
) -> Probe:
    """Predicts the memory of a batch on this device, for the first guess and the chart."""
    if device.kind == "cuda":
        options = AllocatorOptions.parse(request.allocator)
        known = in_the_catalogue(device)
        cudnn = CUDNN_BYTES if known is None else fixed_costs(known).cudnn_bytes
        return lambda batch_size: predict_memory(
            gpu, traces.at(batch_size), options, cudnn_bytes=cudnn
        )
    return lambda batch_size: predict_live_memory(gpu.usable_bytes, traces.at(batch_size))


def _caveats(request: AnalysisRequest, device: DeviceFacts, *, predicted: bool) -> list[str]:
    caveats = [
        "Each trial ran whole training steps in its own process: two to warm up, then up to five "
        "timed." + (" The curve between the trials is predicted." if predicted else ""),
    ]
    if device.kind == "cpu":
        caveats.append(
            "On the CPU, the bytes of live tensors count towards the memory limit. There is no "
            "caching allocator, so nothing is reserved beyond them."
        )
    if request.workload.world_size > 1:
        caveats.append(
            f"{request.workload.world_size:,} processes shared each trial, each with "
            + ("one GPU" if device.kind == "cuda" else "a share of the cores, using Gloo")
            + ". Batch sizes and memory are per process, memory that of the largest; times are "
            "those of the slowest, samples per second the total."
        )
    if local_price_per_hour(request, device) == 0:
        caveats.append(
            "The price of this device is not known, so savings are in hours, without money."
        )
    return caveats
