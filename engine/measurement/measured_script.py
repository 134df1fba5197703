"""Trials of a script on this machine's device, guided by a prediction where it can be traced."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..answer.conclusion import Findings
from ..answer.search import SearchOutcome
from ..core.errors import DoesNotFit
from ..core.sizes import gib
from ..events import Emit, Log, Stage
from ..interface.batch_trials import BatchTrials
from ..interface.request import MAX_BATCH_SIZE, Request
from ..interface.trial import NO_FILES, Source, StepFiles, Trial
from ..prediction.memory.phases import with_measured_step
from ..prediction.scripts.phases import ScriptPhases
from ..prediction.scripts.prediction import does_not_fit, optimizer_step
from ..script.batch_sizes import of_sizes_taken, told_by_loaders, trace_request
from ..script.factory import ScriptFailed
from ..script.identity import hash_of_source, hash_of_traces
from ..script.request import Script, ScriptRequest
from ..script.trace import CannotTrace
from ..traces.source import TraceSource
from ..tracing.lowering import CudaBehaviour, cuda_behaviour
from ..versions import software
from .device import device_for
from .measured_analysis import measured_with_files, memory_predictor
from .parent import local_device
from .protocol import DeviceFacts, TrialOrder
from .trial_process import libraries
from .trials import Trials


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
    predict = None
    if traces is not None:
        request = of_sizes_taken(request, traces)
        predict = memory_predictor(request, device, gpu, traces)
    emit(Log(f"Measuring on {gpu.name}: {gib(gpu.usable_bytes)} for tensors"))
    emit(Stage("search"))
    return ScriptTrials(request, device, gpu, traces, predict, emit).findings()


class ScriptTrials(Trials):
    """Trials of one script on this machine's device; each batch size once."""

    request: ScriptRequest

    def order(self, batch_size: int) -> TrialOrder:
        script, limit = self.request.script_at(batch_size), self.request.memory_limit_bytes
        return TrialOrder(script, batch_size, limit, allocator=self.request.allocator)

    def search(self, request: Request) -> SearchOutcome:
        outcome = super().search(request)
        most = MAX_BATCH_SIZE // request.batch_multiple * request.batch_multiple
        if self.predict is None and outcome.largest_batch_size == most:
            _check_growth(self.request.script, outcome.in_order)
        return outcome

    def refusal(self, batch_size: int) -> DoesNotFit:
        return does_not_fit(self.request, self.probe(batch_size), self.gpu.name)

    def completed(self, found: Findings) -> Findings:
        request, traces = self.request, self.traces
        caveats = [*_caveats(predicted=self.predict is not None), *found.caveats]
        if traces is None:
            hashed = hash_of_source(request.script, found.outcome.trials)
            return replace(found, caveats=caveats, program_hash=hashed)
        found = replace(
            found,
            program_hash=hash_of_traces(traces, request.known_batch_size),
            optimizer_step=optimizer_step(request, traces, found),
        )
        if self.device.kind != "cuda":  # elsewhere the host is the device
            return replace(found, caveats=caveats)
        step = traces.at(found.recommended.batch_size)
        seen = behaviour_on(self.device)
        later = ScriptPhases.of(request.script, request.known_batch_size, seen)
        phases = with_measured_step(later.phases(step, Source.PREDICTED), found.recommended)
        return replace(found, caveats=[*caveats, *later.caveats], phases=phases)


def _check_growth(script: Script, trials: list[Trial]) -> None:
    """Refuse steps that use the same memory at the smallest and the largest possible batch."""
    first, last = trials[0], trials[-1]
    peaks = (first.peak_allocated_bytes, last.peak_allocated_bytes)
    if len(trials) > 1 and None not in peaks and peaks[0] == peaks[1]:
        raise ScriptFailed(
            f"a step uses as much memory at batch {last.batch_size:,} as at "
            f"{first.batch_size:,}; {script.wants_data}"
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
    request = told_by_loaders(request, behaviour_on(device), emit)
    size, limit = request.known_batch_size, request.memory_limit_bytes
    script = request.script_at(size)
    order = TrialOrder(script, size, limit, allocator=request.allocator)
    trial = measured_with_files(order, device, files, emit)
    used = software.loaded()
    caveats = [*software.caveat(request.software, used), *_caveats(predicted=False)]
    return BatchTrials(gpu, [trial], caveats, used)


def behaviour_on(device: DeviceFacts) -> CudaBehaviour | None:
    """This machine's device as a script sees it; ``None`` for one without CUDA."""
    return cuda_behaviour(device.compute_capability) if device.kind == "cuda" else None


def _traces_here(request: ScriptRequest, device: DeviceFacts, emit: Emit) -> TraceSource | None:
    """The traces of a script on this device; ``None`` if it cannot be traced."""
    behaviour = behaviour_on(device)
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
