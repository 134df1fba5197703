"""One analysis of a script, from request to result: measured here, or predicted for a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

from .analysis import on_chosen, with_versions
from .answer.conclusion import Findings
from .answer.plan import Plan
from .events import Emit, Log, Stage
from .gpus import ANY, LOCAL, Gpu
from .gpus.known import known_gpus
from .interface.batch_trials import BatchTrials
from .interface.result import AnalysisResult
from .measurement.measured_script import behaviour_on, measure_script
from .measurement.parent import local_device
from .prediction.plans.climbing import climb_and_compare
from .prediction.plans.gpu_choice import GpuChoice, choose_gpu
from .prediction.plans.gpu_comparison import compared, gpu_option, gpu_today, speed_today
from .prediction.plans.ladder import quiet
from .prediction.predicted_findings import predict_findings, with_profile
from .prediction.requested_gpu import catalogue_gpu, gpu_facts
from .prediction.scripts.conclusion import conclude_script
from .prediction.scripts.ladder import ScriptClimb
from .prediction.scripts.phases import ScriptPhases
from .prediction.scripts.prediction import ScriptPrediction, fits_on_none, prediction_on
from .prediction.scripts.step_time import on_recorded_host
from .prediction.timing.correction import UNCORRECTED
from .records.comparison import RecordedFile
from .script.batch_sizes import TracesOnGpus, of_sizes_taken, told_by_loaders, trace_request
from .script.factory import Factory, refuse_while_loading
from .script.request import ScriptRequest
from .script.trace_report import about_the_trace
from .traces.source import TraceSource
from .tracing.lowering import CudaBehaviour, behaviour_of
from .tracing.trace import Trace
from .versions import software


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
    seen = behaviour_on(device) if device else behaviour_of(_first_gpu(request))
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
    result = conclude_script(request, found)
    if choice is not None:
        result = on_chosen(choice, result)
    used = software.loaded()
    caveats = software.caveat(request.software, used)
    for caveat in caveats:
        emit(Log(caveat, "warning"))
    return with_versions(result, caveats, used)


def _first_gpu(request: ScriptRequest) -> Gpu:
    """The GPU of a request; for ``any``, the first of the catalogue."""
    if request.gpu == ANY:
        return next(iter(known_gpus(request.launch_microseconds).values()))
    return catalogue_gpu(request)


def _choice(request: ScriptRequest, emit: Emit) -> GpuChoice[ScriptRequest]:
    """The GPU of the catalogue that trains a script at the lowest cost."""
    traces = TracesOnGpus(request)
    every = list(known_gpus(request.launch_microseconds).values())
    request = of_sizes_taken(request, traces.on_first(every, emit))

    @cache
    def later(behaviour: CudaBehaviour) -> ScriptPhases:
        return ScriptPhases.of(request.script, request.known_batch_size, behaviour)

    on = partial(prediction_on, traces=traces, later=lambda gpu: later(behaviour_of(gpu)))
    return choose_gpu(request, on, partial(fits_on_none, request), emit)


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
    """Predict the ladder of a script on its GPU, and the script on every catalogue GPU.

    It is traced once for each compute capability, and once for each combination of moves. Its
    evaluation and later epochs, as they are followed without a move on its own GPU, decide which
    batches fit with moves and on other GPUs too.

    Args:
        request: Its GPU is the one used today, or ``local`` for none, and so no ladder.
        emit: Receives log lines, and the rungs of the ladder as they are found.
        recorded: As for :func:`analyze_script`, on the GPU used today.

    Raises:
        InvalidInput: If a price is set without a GPU, or the script does not exist.
        ScriptFailed, CannotTrace: If the script cannot be predicted on the GPU used today; without
            one, on none at all.
    """
    refuse_while_loading()
    here = gpu_today(request)
    every = known_gpus(request.launch_microseconds)
    first = here or next(iter(every.values()))
    request = told_by_loaders(request, behaviour_of(first), emit)
    traces = TracesOnGpus(request)
    seen = traces.on_first([*every.values()], emit) if here is None else traces.on(here, emit)
    request = of_sizes_taken(request, seen)
    later = ScriptPhases(None, request.known_batch_size)
    climb, host = None, UNCORRECTED
    if here is not None:
        later = ScriptPhases.of(request.script, request.known_batch_size, behaviour_of(here))
        gpu, host = on_recorded_host(request, catalogue_gpu(request), seen, recorded)
        here = replace(here, launch_seconds=gpu.launch_seconds, launch_range=gpu.launch_range)
        climb = ScriptClimb(
            request, gpu, software.loaded(), traces=seen, later=later, correction=host
        )
        every |= {here.name: here}
    on = partial(prediction_on, request, emit=quiet, traces=traces, later=lambda gpu: later)
    speed = None if here is None else speed_today(on(here))
    climbed = climb_and_compare(
        climb,
        [*every],
        partial(_alike, [*every.values()]),
        lambda gpus: [gpu_option(request, here, gpu, on(gpu), speed) for gpu in gpus],
        emit,
    )
    found = compared(request.script.name, request, here, climbed.options, speed)
    used = software.loaded()
    caveats = [
        *software.caveat(request.software, used),
        *found.caveats,
        *host.host_caveats(),
        *later.without_what_was_followed(about_the_trace(seen.at(request.known_batch_size), here)),
        *later.caveats,
    ]
    return replace(found, ladder=climbed.ladder, caveats=caveats, software=used)


def _alike(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """GPUs in groups that one trace does for."""
    groups: dict[float, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        groups[gpu.compute_capability].append(gpu)
    return [*groups.values()]


def _predicted(request: ScriptRequest, emit: Emit, recorded: RecordedFile | None) -> Findings:
    """Predict from a trace, with the same search as for a known model."""
    gpu = catalogue_gpu(request)
    traces = _traces(request, gpu, emit)
    gpu, host = on_recorded_host(request, gpu, traces, recorded)
    request = of_sizes_taken(request, traces)
    later = ScriptPhases.of(request.script, request.known_batch_size, behaviour_of(gpu))
    emit(Stage("search"))
    prediction = ScriptPrediction(request, gpu, traces, later, host)
    return with_profile(prediction, predict_findings(prediction, emit))


def _traces(request: ScriptRequest, gpu: Gpu, emit: Emit) -> TraceSource:
    emit(Log(f"Tracing {request.script.name} on fake tensors; none of its steps are run"))
    emit(Stage("trace"))
    behaviour = behaviour_of(gpu)
    return trace_request(request, behaviour, lambda message: emit(Log(message, "warning")))
