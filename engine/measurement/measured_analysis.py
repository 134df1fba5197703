"""The analysis on the local device: a prediction gives the first guess, trials the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ..allocator.options import AllocatorOptions
from ..answer.conclusion import Findings, conclude
from ..core.errors import DoesNotFit, EngineError, InvalidInput
from ..core.sizes import gib
from ..events import Emit, Log, Stage
from ..gpus.fixed_costs import CUDNN_BYTES, fixed_costs
from ..hub import resolve
from ..interface.request import AnalysisRequest, Request
from ..interface.result import AnalysisResult, MeasuredOn, Phase
from ..interface.trial import NO_FILES, GpuFacts, Probe, StepFiles, Trial
from ..parallel.interconnect import accumulation_caveats
from ..prediction.memory.phases import phases_of, with_measured_step
from ..prediction.probe import operations_seconds, predict_live_memory, predict_memory
from ..prediction.refusals import does_not_fit
from ..step.building import cache_caveats
from ..traces.source import TraceSource
from ..traces.workloads import trace_request
from ..tracing.lowering import CudaBehaviour, behaviour_of, cuda_behaviour
from .device import device_for, in_the_catalogue, local_price_per_hour
from .parent import local_device, measure, profile, snapshot
from .protocol import DeviceFacts, TrialOrder
from .trial_process import libraries
from .trials import Trials, ran_on, recorded, with_breakdown


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
    emit(Stage("search"))
    found = ModelTrials(request, device, gpu, traces, predict, emit, known).findings()
    return conclude(request, replace(found, caveats=[*unpredicted, *found.caveats]))


class ModelTrials(Trials):
    """Trials of one workload on this machine's device; each batch size once."""

    request: AnalysisRequest
    traces: TraceSource

    def order(self, batch_size: int) -> TrialOrder:
        workload, limit = self.request.workload_at(batch_size), self.request.memory_limit_bytes
        return TrialOrder(workload, batch_size, limit, allocator=self.request.allocator)

    def run(self, batch_size: int) -> Trial:
        trial, known = super().run(batch_size), in_the_catalogue(self.device)
        if known is None or not trial.fits or self.predict is None:
            return trial
        workload, step = self.request.workload_at(batch_size), self.traces.at(batch_size)
        return replace(trial, operations_seconds=operations_seconds(workload, known, step))

    def refusal(self, batch_size: int) -> DoesNotFit:
        smallest = (self.predict or self.probe)(batch_size)
        return does_not_fit(self.request, smallest, self.gpu)

    def completed(self, found: Findings) -> Findings:
        request, device, is_predicted = self.request, self.device, self.predict is not None
        trained = request.workload_at(found.recommended.batch_size)
        caveats = [
            *_caveats(request, device, predicted=is_predicted),
            *cache_caveats(trained),
            *accumulation_caveats(trained),
            *found.caveats,
        ]
        phases = _phases(request, device, self.traces, found.recommended) if is_predicted else []
        return replace(found, caveats=caveats, phases=phases)


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
        trial = with_breakdown(trial, recorded(order, device, emit))
    return gpu, trial, ran_on(order, emit)


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
