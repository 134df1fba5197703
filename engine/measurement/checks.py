"""Checks of the engine that a user can repeat.

Predicted vs. measured numbers, on this machine or from the calibration files, and the whole step's
memory vs. that of the forward pass alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import torch

from ..answer.search import find_largest
from ..core.errors import DoesNotFit, InvalidInput
from ..core.numbers import times
from ..core.process import calibration_file
from ..events import Emit, Log
from ..gpus import GPUS, LOCAL, catalogue_name
from ..hub import resolve
from ..interface.trial import GpuFacts, Probe, Source, Trial
from ..interface.workload import Workload
from ..prediction.predicted_findings import format_trial
from ..prediction.probe import operations_seconds, predict_live_memory, predict_memory, predict_step
from ..prediction.timing.intervals import PUBLISHED, Counted, Residual, read_residuals
from ..prediction.timing.speed_model import step_predictor
from ..step.building import blaming_the_config
from ..traces.source import TraceSource
from ..traces.tracer import trace
from ..traces.workloads import trace_workload
from ..tracing.lowering import CudaBehaviour, cuda_behaviour
from .device import in_the_catalogue, lacking_devices, limited_device
from .parent import local_device, measure
from .protocol import DeviceFacts, TrialOrder
from .trial_process import libraries

MODELS = ("bert", "gpt2", "resnet")
SMALL_BATCH = 2
CPU_MEMORY_LIMIT = 3 * 2**30
"""The memory limit where there is no GPU; enough for each of the models."""


@dataclass(frozen=True)
class Comparison:
    """One number, predicted and measured.

    Attributes:
        residual: Both numbers, with what they describe.
        error: Predicted over measured, minus 1: negative if the prediction was too low.
    """

    residual: Residual
    error: float


@dataclass(frozen=True)
class Fit:
    """Whether a batch fits, predicted and measured."""

    model: str
    batch_size: int
    predicted: bool
    measured: bool


@dataclass(frozen=True)
class PredictionCheck:
    """Comparison of predictions with measurements.

    Attributes:
        device: The device on which the numbers were measured, for people to read.
        comparisons: Every number.
        fits: Every batch tried near a limit; empty if nothing was run.
        median_error, worst_error: Errors in memory, without sign.
        false_safe_rate: The share of batches predicted to fit that do not; ``None`` if nothing was
            run.
        source: ``measured`` if this check measured, else ``predicted``.
        verdict: The check in one sentence.
    """

    device: str
    comparisons: list[Comparison]
    fits: list[Fit]
    median_error: float
    worst_error: float
    false_safe_rate: float | None
    source: Source
    verdict: str


def validate_known() -> PredictionCheck:
    """Predict the catalogue GPUs' entries in the calibration files again; nothing is run.

    Raises:
        EngineError: If a calibration file cannot be used.
    """
    files = [path for path in (PUBLISHED, calibration_file()) if path.exists()]
    known = [residual for path in files for residual in read_residuals(path)]
    again = [_predicted_again(residual) for residual in known if residual.gpu in GPUS]
    return summarize("the GPUs of the calibration files", again, [], Source.PREDICTED)


def _predicted_again(residual: Residual) -> Residual:
    gpu = GPUS[residual.gpu]
    workload = resolve(Workload.parse(residual.workload))
    step = trace(
        workload,
        residual.batch_size,
        cuda_behaviour(gpu.compute_capability),
        forward_only=residual.forward_only,
    )
    trial = predict_memory(GpuFacts(gpu.display_name, gpu.total_bytes, gpu.usable_bytes), step)
    if residual.counted is Counted.STEP_SECONDS:
        predicted = predict_step(workload, gpu, step).seconds
    else:
        predicted = getattr(trial, residual.counted)
    return _with_prediction(residual, predicted)


@libraries.kept()
def validate_local(
    models: Sequence[str], memory_limit_bytes: int | None, emit: Emit
) -> PredictionCheck:
    """Measure workloads on this machine's device and compare their predictions.

    For each model this runs a small batch, the largest batch predicted to fit and the next one,
    each in a fresh process. The first two give numbers, the last two show whether the limit is
    right.

    Args:
        models: Presets, with default settings.
        memory_limit_bytes: Emulates a smaller GPU, which makes the check faster; on the CPU the
            default is :data:`CPU_MEMORY_LIMIT`.
        emit: Receives log lines.

    Raises:
        InvalidInput: If a model is unknown, its config cannot be fetched or trained, or the limit
            exceeds the memory.
        MeasurementFailed: If a trial failed for a reason other than memory.
    """
    workloads = [resolve(Workload(model)) for model in models]
    device = local_device()
    if device.kind == "cpu" and memory_limit_bytes is None:
        memory_limit_bytes = CPU_MEMORY_LIMIT
    gpu = limited_device(device, memory_limit_bytes)
    found: list[Residual] = []
    fits: list[Fit] = []
    for workload in workloads:
        predict, traces = _predictor(workload, device, gpu, emit)
        limit = find_largest(predict, limit_bytes=gpu.usable_bytes)
        largest = limit.largest_batch_size
        emit(Log(f"{workload.model}: predicted to fit up to batch {largest:,}; measuring"))
        for batch_size in sorted({min(SMALL_BATCH, max(largest, 1)), largest, largest + 1} - {0}):
            trial = measure(TrialOrder(workload, batch_size, memory_limit_bytes))
            emit(Log(format_trial(trial)))
            predicted = predict(batch_size)
            fits.append(Fit(workload.model, batch_size, predicted.fits, trial.fits))
            if predicted.fits and trial.fits:
                seconds = None
                if (known := in_the_catalogue(device)) is not None:
                    seconds = operations_seconds(workload, known, traces.at(batch_size))
                found += _residuals(workload, device, predicted, trial, seconds)
    return summarize(gpu.name, found, fits, Source.MEASURED)


def _predictor(
    workload: Workload, device: DeviceFacts, gpu: GpuFacts, emit: Emit
) -> tuple[Probe, TraceSource]:
    on_cuda = device.kind == "cuda"
    behaviour: CudaBehaviour | None = cuda_behaviour(device.compute_capability) if on_cuda else None
    traces = trace_workload(workload, behaviour, emit)

    def predict(batch_size: int) -> Trial:
        if on_cuda:
            return predict_memory(gpu, traces.at(batch_size))
        return predict_live_memory(gpu.usable_bytes, traces.at(batch_size))

    return predict, traces


def _residuals(
    workload: Workload,
    device: DeviceFacts,
    predicted: Trial,
    measured: Trial,
    predicted_seconds: float | None,
) -> Iterable[Residual]:
    allocated = Counted.PEAK_ALLOCATED if device.kind == "cuda" else Counted.LIVE
    numbers = [
        (allocated, predicted.peak_allocated_bytes, measured.peak_allocated_bytes),
        (Counted.PEAK_RESERVED, predicted.peak_reserved_bytes, measured.peak_reserved_bytes),
        (Counted.DEVICE_USED, predicted.device_used_bytes, measured.device_used_bytes),
        (Counted.STEP_SECONDS, predicted_seconds, measured.step_seconds),
    ]
    # A config from the Hub is fetched again by its id.
    plain = Workload(workload.model, config=workload.config).to_dict()
    given = workload.to_dict()
    changed = {name: value for name, value in given.items() if value != plain[name]}
    source = f"validate prediction, {datetime.now(UTC):%Y-%m-%d}, torch {torch.__version__}"
    return [
        Residual(
            gpu=catalogue_name(device.name, device.total_bytes) or device.name,
            workload={"model": workload.model} | changed,
            batch_size=measured.batch_size,
            counted=counted,
            measured=found,
            predicted=expected,
            source=source,
            predictor=step_predictor() if counted is Counted.STEP_SECONDS else "",
        )
        for counted, expected, found in numbers
        if expected is not None and found is not None
    ]


def _with_prediction(residual: Residual, predicted: float) -> Residual:
    return Residual(**vars(residual) | {"predicted": predicted})


def summarize(
    device: str, residuals: Iterable[Residual], fits: Sequence[Fit], source: Source
) -> PredictionCheck:
    """The check that these numbers amount to.

    Raises:
        InvalidInput: If there is nothing to compare.
    """
    compared = [Comparison(residual, 1 / residual.ratio - 1) for residual in residuals]
    errors = [
        abs(one.error) for one in compared if one.residual.counted is not Counted.STEP_SECONDS
    ]
    if not errors:
        raise InvalidInput({"model": "nothing fits on this device, so nothing can be compared"})
    promised = [fit for fit in fits if fit.predicted]
    broken = sum(not fit.measured for fit in promised)
    text = (
        f"On {device}, predicted memory is off by {100 * median(errors):.2f}% in the median and "
        f"{100 * max(errors):.2f}% at worst, over {len(errors)} numbers"
    )
    if promised:
        text += f"; of {len(promised)} batches predicted to fit, {broken} did not"
    return PredictionCheck(
        device=device,
        comparisons=compared,
        fits=list(fits),
        median_error=median(errors),
        worst_error=max(errors),
        false_safe_rate=broken / len(promised) if promised else None,
        source=source,
        verdict=f"{text}.",
    )


BACKWARD_RATIO = 1.5
"""Training needs at least this many times the memory of the forward pass: gradients alone double
the parameters, and backward needs the activations that a forward pass frees. BERT at batch 16 needs
2 to 3.4 times as much."""


@dataclass(frozen=True)
class BackwardCheck:
    """The memory of the forward pass alone vs. that of the whole step.

    Attributes:
        batch_size: Samples per step.
        forward_bytes: Peak allocated by the forward pass without gradients.
        training_bytes: Peak allocated by the whole training step.
        ratio: Their quotient; near 1 means that backward does not run.
        passed: Whether the ratio is large enough.
        source: Source of both numbers.
        verdict: The check in one sentence.
    """

    batch_size: int
    forward_bytes: int
    training_bytes: int
    ratio: float
    passed: bool
    source: Source
    verdict: str


def validate_backward(workload: Workload, batch_size: int, gpu: str) -> BackwardCheck:
    """Show that the training step runs backward: it uses far more memory than forward alone.

    Args:
        workload: The workload to train.
        batch_size: Samples per step.
        gpu: A catalogue GPU (predicted), or ``local`` (measured).

    Raises:
        InvalidInput: If the model's config cannot be fetched or trained, or the machine has too
            few GPUs.
        DoesNotFit: If the local device has too little memory for it.
        MeasurementFailed: If a trial failed for another reason.
    """
    workload = resolve(workload)
    shared = gpu == LOCAL and workload.world_size > 1
    if shared and (wrong := lacking_devices(workload, local_device())):
        raise InvalidInput(wrong)
    peaks = _measured if gpu == LOCAL else _predicted
    forward, training = (peaks(workload, batch_size, gpu, forward_only=f) for f in (True, False))
    ratio = training / forward
    passed = ratio >= BACKWARD_RATIO
    source = Source.MEASURED if gpu == LOCAL else Source.PREDICTED
    runs = "backward runs" if passed else "backward does not seem to run"
    return BackwardCheck(
        batch_size=batch_size,
        forward_bytes=forward,
        training_bytes=training,
        ratio=ratio,
        passed=passed,
        source=source,
        verdict=(
            f"At batch {batch_size:,}, the training step uses {times(ratio)} the memory of the "
            f"forward pass alone ({source}): {runs}."
        ),
    )


def _predicted(workload: Workload, batch_size: int, gpu: str, *, forward_only: bool) -> int:
    behaviour = cuda_behaviour(GPUS[gpu].compute_capability)
    with blaming_the_config(workload):
        steps = trace(workload, batch_size, behaviour, forward_only=forward_only)
    return steps.replay().peak_allocated_bytes


def _measured(workload: Workload, batch_size: int, gpu: str, *, forward_only: bool) -> int:
    trial: Trial = measure(TrialOrder(workload, batch_size, forward_only=forward_only))
    if not trial.fits or trial.peak_allocated_bytes is None:
        raise DoesNotFit(f"batch {batch_size:,} does not fit on this machine: {trial.failure}")
    return trial.peak_allocated_bytes
