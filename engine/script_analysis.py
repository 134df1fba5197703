"""One analysis of a script, from request to result: measured here, or predicted for a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

import torch

from .analysis import on_chosen, with_versions
from .answer.certificate import repeat_commands
from .answer.conclusion import Findings, answer
from .answer.plan import Plan
from .answer.recommendation import recommend_measured
from .core.sizes import gib
from .events import Event, Log, Stage
from .gpus import ANY, LOCAL, Gpu
from .gpus.known import known_gpus
from .interface.batch_trials import BatchTrials
from .interface.result import AnalysisResult
from .interface.trial import NO_FILES, Source, StepFiles, Trial
from .measurement.device import device_for
from .measurement.measured_analysis import On, findings, measured_with_files, memory_predictor
from .measurement.parent import local_device, measure
from .measurement.protocol import DeviceFacts, TrialOrder
from .measurement.script_search import search_by_trials
from .measurement.trial_process import libraries
from .prediction.correction import UNCORRECTED
from .prediction.gpu_choice import GpuChoice, choose_gpu
from .prediction.gpu_comparison import compare_gpus, gpu_today
from .prediction.phases import with_measured_step
from .prediction.predicted_findings import (
    curve,
    predict_findings,
    reporting_probe,
    with_profile,
)
from .prediction.requested_gpu import catalogue_gpu, gpu_facts
from .records.comparison import RecordedFile
from .script.batch_sizes import TracesOnGpus, told_by_loaders, trace_request
from .script.factory import Factory, refuse_while_loading
from .script.identity import hash_of_source, hash_of_traces
from .script.live import Live
from .script.phases import ScriptPhases
from .script.prediction import (
    ScriptPrediction,
    does_not_fit,
    fits_on_none,
    optimizer_step,
    prediction_on,
)
from .script.request import ScriptRequest
from .script.seen import about_the_trace
from .script.step_time import (
    on_recorded_host,
)
from .script.trace import CannotTrace
from .traces.source import TraceSource
from .tracing.lowering import CudaBehaviour, behaviour_of, cuda_behaviour
from .tracing.trace import Trace
from .versions import software

Emit = Callable[[Event], None]


def analyze_script(
    request: ScriptRequest, emit: Emit, recorded: RecordedFile | None = None
) -> AnalysisResult:
    """Find the batch sizes for a script.

    Args:
        request: The request to analyse; for ``any`` GPU one is chosen first, and the result says
            which.
        emit: Receives log lines and trials as they come.
        recorded: Training runs of the script; gives the launch time of the machine.

    Raises:
        InvalidInput: If the factory does not exist, cannot accumulate but has to, or the memory
            limit is missing or too high.
        ScriptFailed: If the script raised an error while it was traced.
        CannotTrace: If it cannot be predicted.
        DoesNotFit: If not even the smallest batch fits.
        MeasurementFailed: If a measured trial failed for a reason other than memory.
    """
    refuse_while_loading()
    device = local_device() if request.gpu == LOCAL else None
    seen = _behaviour_on(device) if device else behaviour_of(_first_gpu(request))
    request = told_by_loaders(request, seen, emit)
    if request.global_batch_size is not None and isinstance(request.script, Factory):
        # Otherwise the error would come only when the search reaches a batch that accumulates.
        replace(request.script, gradient_accumulation=2).load()
    choice = _choice(request, emit) if request.gpu == ANY else None
    if choice is not None:
        request = choice.request
    if device is not None:
        found = measure_script(request, device, emit)
    else:
        found = _predicted(request, emit, recorded)
    result = _conclude(request, found)
    if choice is not None:
        result = on_chosen(choice, result)
    used = software.loaded()
    for caveat in software.caveat(request.software, used):
        emit(Log(caveat, "warning"))
    return with_versions(result, request.software, used)


def _first_gpu(request: ScriptRequest) -> Gpu:
    """The GPU of a request; for ``any``, the first of the catalogue."""
    if request.gpu == ANY:
        return next(iter(known_gpus(request.launch_microseconds).values()))
    return catalogue_gpu(request)


def _choice(request: ScriptRequest, emit: Emit) -> GpuChoice[ScriptRequest]:
    """The GPU of the catalogue that trains a script at the lowest cost."""
    traces = TracesOnGpus(request)
    every = list(known_gpus(request.launch_microseconds).values())
    request = _of_sizes_taken(request, traces.on_first(every, emit))

    @cache
    def later(behaviour: CudaBehaviour) -> ScriptPhases:
        return ScriptPhases.of(request.script, request.known_batch_size, behaviour)

    on = partial(prediction_on, traces=traces, later=lambda gpu: later(behaviour_of(gpu)))
    return choose_gpu(request, on, partial(fits_on_none, request), emit)


def _conclude(request: ScriptRequest, found: Findings) -> AnalysisResult:
    """The answer to a request for a script."""
    settings = {"memory_limit_bytes": request.memory_limit_bytes, "allocator": request.allocator}
    changed = {name: value for name, value in settings.items() if value}
    commands, runs = [], []
    if not isinstance(request.script, Live):  # no other process can repeat that
        words = request.script.words()
        commands = repeat_commands(request, words, changed, found.source, found.sides)
        runs = repeat_commands(request, words, changed, Source.MEASURED, found.batches)
    return answer(request, found, request.script.name, commands, runs)


def predict_script(
    request: ScriptRequest,
    emit: Emit,
    batch_sizes: Sequence[int] = (),
    recorded: RecordedFile | None = None,
    seen: Callable[[Trace, Gpu], object] = lambda trace, gpu: None,
) -> BatchTrials:
    """Predict some batch sizes on a catalogue GPU.

    Args:
        request: The request to predict.
        emit: Receives log lines.
        batch_sizes: Batch sizes to predict; by default the request's current one.
        recorded: As for :func:`analyze_script`.
        seen: Receives the traced steps of the first, and the GPU on which they are predicted.

    Raises:
        InvalidInput: If the factory does not exist, or cannot accumulate but has to.
        ScriptFailed: If the script raised an error.
        CannotTrace: If it cannot be predicted.
    """
    refuse_while_loading()
    gpu = catalogue_gpu(request)
    request = told_by_loaders(request, behaviour_of(gpu), emit)
    traces = _traces(request, gpu, emit)
    sizes = batch_sizes or (request.known_batch_size,)
    for size in sizes:
        traces.at(size).check_runnable()
    gpu, host = on_recorded_host(request, gpu, traces, recorded)
    later = ScriptPhases.of(request.script, sizes[0], behaviour_of(gpu))
    prediction = ScriptPrediction(request, gpu, traces, later, host)
    trials = [prediction.predict(size, careful=True) for size in sizes]
    step = traces.at(sizes[0])
    seen(step, gpu)
    used = software.loaded()
    caveats = [
        *software.caveat(request.software, used),
        *later.without_what_was_followed(about_the_trace(step, gpu)),
        *later.caveats,
        *host.host_caveats(),
    ]
    phases = later.phases(step, trials[0].source)
    return BatchTrials(gpu_facts(gpu), trials, caveats, used, phases)


def plan_script(request: ScriptRequest, emit: Emit, recorded: RecordedFile | None = None) -> Plan:
    """Predict a script on every catalogue GPU, tracing it once for each compute capability.

    Args:
        request: Its GPU is the one used today, or ``local`` for none.
        emit: Receives log lines.
        recorded: As for :func:`analyze_script`, on the GPU used today.

    Raises:
        InvalidInput: If a price is set without a GPU, or the script does not exist.
        ScriptFailed, CannotTrace: If the script cannot be predicted on the GPU used today; without
            one, on none at all.
    """
    refuse_while_loading()
    here = gpu_today(request)
    every = list(known_gpus(request.launch_microseconds).values())
    request = told_by_loaders(request, behaviour_of(here or every[0]), emit)
    traces = TracesOnGpus(request)
    seen = traces.on_first(every, emit) if here is None else traces.on(here, emit)
    request = _of_sizes_taken(request, seen)
    host = UNCORRECTED
    if here is not None:
        here, host = on_recorded_host(request, here, seen, recorded)
    not_followed = ScriptPhases(None, request.known_batch_size)
    on = partial(prediction_on, request, emit=emit, traces=traces, later=lambda gpu: not_followed)
    found = compare_gpus(request.script.name, request, here, on)
    used = software.loaded()
    caveats = [
        *software.caveat(request.software, used),
        *found.caveats,
        *host.host_caveats(),
        *about_the_trace(seen.at(request.known_batch_size), here),
        *not_followed.caveats,
    ]
    return replace(found, caveats=caveats, software=used)


def _predicted(request: ScriptRequest, emit: Emit, recorded: RecordedFile | None) -> Findings:
    """Predict from a trace, with the same search as for a known model."""
    gpu = catalogue_gpu(request)
    traces = _traces(request, gpu, emit)
    gpu, host = on_recorded_host(request, gpu, traces, recorded)
    request = _of_sizes_taken(request, traces)
    later = ScriptPhases.of(request.script, request.known_batch_size, behaviour_of(gpu))
    emit(Stage("search"))
    prediction = ScriptPrediction(request, gpu, traces, later, host)
    return with_profile(prediction, predict_findings(prediction, emit))


def _of_sizes_taken(request: ScriptRequest, traces: TraceSource) -> ScriptRequest:
    """The request, for those of its batch sizes that the script takes."""
    taken = traces.at(request.known_batch_size).batch_multiple
    multiple = math.lcm(request.batch_multiple, taken)
    return replace(request, batch_multiple=multiple, multiple_taken=taken)


def _traces(request: ScriptRequest, gpu: Gpu, emit: Emit) -> TraceSource:
    emit(Log(f"Tracing {request.script.name} on fake tensors; none of its steps are run"))
    emit(Stage("trace"))
    behaviour = behaviour_of(gpu)
    return trace_request(request, behaviour, lambda message: emit(Log(message, "warning")))


Probe = Callable[[int], Trial]


@libraries.kept()
def measure_script(request: ScriptRequest, device: DeviceFacts, emit: Emit) -> Findings:
    """Find the largest batch by trials, guided by a prediction where the script can be traced.

    Args:
        request: The request to analyse; its GPU is ``local``.
        device: The device of this machine.
        emit: Receives log lines and trials as they come.

    Raises:
        InvalidInput: If the factory does not exist, or the memory limit is missing or too high.
        ScriptFailed: If the factory returns no steps.
        DoesNotFit: If not even the smallest batch fits.
        MeasurementFailed: If a trial failed for a reason other than memory.
    """
    gpu = device_for(request, device, None)
    emit(Stage("trace"))
    traces = _traces_here(request, device, emit)
    predict: Probe | None = None
    if traces is not None:
        request = _of_sizes_taken(request, traces)
        predict = memory_predictor(request, device, gpu, traces)
    emit(Log(f"Measuring on {gpu.name}: {gib(gpu.usable_bytes)} for tensors"))
    emit(Stage("search"))

    def order(batch_size: int) -> TrialOrder:
        script = request.script_at(batch_size)
        limit = request.memory_limit_bytes
        return TrialOrder(script, batch_size, limit, allocator=request.allocator)

    probe = reporting_probe(lambda batch_size: measure(order(batch_size)), emit)
    outcome = search_by_trials(request, gpu, probe, predict)
    if outcome.largest_batch_size == 0 and request.batch_multiple > request.least_multiple:
        emit(Log(f"No multiple of {request.batch_multiple:,} fits; trying every batch size"))
        request = replace(request, batch_multiple=request.least_multiple)
        outcome = search_by_trials(request, gpu, probe, predict)
    if outcome.largest_batch_size == 0:
        raise does_not_fit(request, probe(request.batch_multiple), gpu.name)
    chosen = recommend_measured(request, outcome)
    found = findings(request, outcome, chosen, On(device, gpu), order, probe, emit)
    caveats = [*_caveats(predicted=predict is not None), *found.caveats]
    points = curve(predict, outcome, request.batch_multiple) if predict else outcome.in_order
    identity = (
        hash_of_traces(traces, request.known_batch_size)
        if traces
        else hash_of_source(request.script, outcome.trials)
    )
    step_of = optimizer_step(request, traces, found) if traces else None
    phases = []
    if traces is not None and device.kind == "cuda":  # elsewhere the host is the device
        size = found.recommended.batch_size
        later = ScriptPhases.of(request.script, request.known_batch_size, _behaviour_on(device))
        phases = with_measured_step(
            later.phases(traces.at(size), Source.PREDICTED), found.recommended
        )
        caveats += later.caveats
    return replace(
        found,
        curve=points,
        caveats=caveats,
        program_hash=identity,
        optimizer_step=step_of,
        phases=phases,
    )


@libraries.kept()
def measure_script_batch(
    request: ScriptRequest, emit: Emit, files: StepFiles = NO_FILES
) -> BatchTrials:
    """Measure one batch size, the request's current one, on the local device.

    Args:
        request: The request to measure.
        emit: Receives log lines.
        files: As for :func:`~engine.measurement.measured_analysis.measure_batch`.

    Raises:
        InvalidInput: If the script does not exist, or the memory limit is missing or too high.
        MeasurementFailed: If the trial failed for a reason other than memory.
    """
    device = local_device()
    gpu = device_for(request, device, None)
    request = told_by_loaders(request, _behaviour_on(device), emit)
    size, limit = request.known_batch_size, request.memory_limit_bytes
    script = request.script_at(size)
    order = TrialOrder(script, size, limit, allocator=request.allocator)
    trial = measured_with_files(order, device, files, emit)
    used = software.loaded()
    caveats = [*software.caveat(request.software, used), *_caveats(predicted=False)]
    return BatchTrials(gpu, [trial], caveats, used)


def _behaviour_on(device: DeviceFacts) -> CudaBehaviour | None:
    """This machine's device as a script sees it; ``None`` for one without CUDA."""
    return cuda_behaviour(device.compute_capability) if device.kind == "cuda" else None


def _traces_here(request: ScriptRequest, device: DeviceFacts, emit: Emit) -> TraceSource | None:
    """The traces of a script on this device; ``None`` if it cannot be traced."""
    behaviour = _behaviour_on(device)
    try:
        traces = trace_request(request, behaviour, lambda message: emit(Log(message, "warning")))
        traces.at(request.known_batch_size)
    except CannotTrace as error:
        emit(Log(f"Searching without a prediction: {error.reason}", "warning"))
        return None
    return traces


def _caveats(*, predicted: bool) -> list[str]:
    curve_too = " The curve between the trials is predicted." if predicted else ""
    return [
        "Each trial ran in its own process: the script, its warm-up steps and up to five timed "
        f"ones, with torch {torch.__version__}.{curve_too}"
    ]
