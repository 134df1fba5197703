"""Predicted against measured: on this machine's device, or against what is known of other GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import torch

from engine.answer.search import find_largest
from engine.errors import InvalidInput
from engine.events import Event, Log
from engine.gpus import GPUS, canonical_name
from engine.measurement.device import limited_device
from engine.measurement.parent import local_device, measure
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.models.hub import resolve
from engine.prediction.analysis import in_words, traces
from engine.prediction.intervals import PUBLISHED, Counted, Residual, own_file, read_residuals
from engine.prediction.probe import predict_live_memory, predict_memory
from engine.prediction.step_time import predict_step_seconds
from engine.result import GpuFacts, Source, Trial
from engine.tracing.lowering import CudaBehaviour, cuda_behaviour
from engine.tracing.tracer import TraceAt, trace
from engine.workload import Workload

MODELS = ("bert", "gpt2", "resnet")
SMALL_BATCH = 2
CPU_MEMORY_LIMIT = 3 * 2**30
"""Where there is no GPU, so much memory is taken for one: enough for each of the models."""

Emit = Callable[[Event], None]


@dataclass(frozen=True)
class Comparison:
    """One figure, predicted and measured.

    Attributes:
        residual: Both figures, with what they are of.
        error: Predicted over measured, less 1: below zero the prediction was too low.
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
    """How far predictions are from measurements.

    Attributes:
        device: Where the figures were measured, in words.
        comparisons: Every figure.
        fits: Every batch that was tried near a limit; empty where nothing was run.
        median_error, worst_error: Of the memory figures, without their sign.
        false_safe_rate: The share of the batches predicted to fit that do not; ``None`` where
            nothing was run.
        source: ``measured`` if figures were measured for this check, else ``predicted``.
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
    """Predict again what the calibration files hold of GPUs of the catalogue; nothing is run.

    Raises:
        EngineError: If a calibration file is not usable.
    """
    files = [path for path in (PUBLISHED, own_file()) if path.exists()]
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
        predicted = predict_step_seconds(
            step.operations, gpu, workload.precision, workload.gradient_accumulation
        )
    else:
        predicted = getattr(trial, residual.counted)
    return _with_prediction(residual, predicted)


def validate_local(
    models: Sequence[str], memory_limit_bytes: int | None, emit: Emit
) -> PredictionCheck:
    """Measure workloads on this machine's device and hold their predictions against it.

    Of each model a small batch, the largest batch predicted to fit and the next one are run, each
    in a fresh process: the first two give figures, the last two show whether the limit is right.

    Args:
        models: What is trained, at its defaults.
        memory_limit_bytes: Emulates a smaller GPU, which makes the check quicker; on the CPU
            :data:`CPU_MEMORY_LIMIT` unless given.
        emit: Receives log lines.

    Raises:
        InvalidInput: If a model is unknown, its config cannot be had or trained, or the limit is
            more memory than there is.
        MeasurementFailed: If a trial ended for another reason than memory.
    """
    workloads = [resolve(Workload(model)) for model in models]
    device = local_device()
    if device.kind == "cpu" and memory_limit_bytes is None:
        memory_limit_bytes = CPU_MEMORY_LIMIT
    gpu = limited_device(device, memory_limit_bytes)
    found: list[Residual] = []
    fits: list[Fit] = []
    for workload in workloads:
        predict, trace_at = _predictor(workload, device, gpu, emit)
        limit = find_largest(predict, limit_bytes=gpu.usable_bytes)
        largest = limit.largest_batch_size
        emit(Log(f"{workload.model}: predicted to fit up to batch {largest:,}; measuring"))
        for batch_size in sorted({min(SMALL_BATCH, max(largest, 1)), largest, largest + 1} - {0}):
            trial = measure(TrialOrder(workload, batch_size, memory_limit_bytes))
            emit(Log(in_words(trial)))
            predicted = predict(batch_size)
            fits.append(Fit(workload.model, batch_size, predicted.fits, trial.fits))
            if predicted.fits and trial.fits:
                seconds = _predicted_seconds(workload, device, trace_at, batch_size)
                found += _residuals(workload, device, predicted, trial, seconds)
    return summarize(gpu.name, found, fits, Source.MEASURED)


def _predictor(
    workload: Workload, device: DeviceFacts, gpu: GpuFacts, emit: Emit
) -> tuple[Callable[[int], Trial], TraceAt]:
    on_cuda = device.kind == "cuda"
    behaviour: CudaBehaviour | None = cuda_behaviour(device.compute_capability) if on_cuda else None
    trace_at = traces(workload, behaviour, emit)

    def predict(batch_size: int) -> Trial:
        if on_cuda:
            return predict_memory(gpu, trace_at(batch_size))
        return predict_live_memory(gpu.usable_bytes, trace_at(batch_size))

    return predict, trace_at


def _predicted_seconds(
    workload: Workload, device: DeviceFacts, trace_at: TraceAt, batch_size: int
) -> float | None:
    """The predicted step time, where the device is a GPU of the catalogue."""
    name = _name_of(device)
    if device.kind != "cuda" or name not in GPUS:
        return None
    return predict_step_seconds(trace_at(batch_size).operations, GPUS[name], workload.precision)


def _name_of(device: DeviceFacts) -> str:
    """The catalogue's name for the device; the driver's where it is not in the catalogue."""
    try:
        return canonical_name(device.name)
    except InvalidInput:
        return device.name


def _residuals(
    workload: Workload,
    device: DeviceFacts,
    predicted: Trial,
    measured: Trial,
    predicted_seconds: float | None,
) -> Iterable[Residual]:
    allocated = Counted.PEAK_ALLOCATED if device.kind == "cuda" else Counted.LIVE
    figures = [
        (allocated, predicted.peak_allocated_bytes, measured.peak_allocated_bytes),
        (Counted.PEAK_RESERVED, predicted.peak_reserved_bytes, measured.peak_reserved_bytes),
        (Counted.DEVICE_USED, predicted.device_used_bytes, measured.device_used_bytes),
        (Counted.STEP_SECONDS, predicted_seconds, measured.step_seconds),
    ]
    # A config of the hub is fetched again by its id.
    plain = Workload(workload.model, config=workload.config).to_dict()
    given = workload.to_dict()
    changed = {name: value for name, value in given.items() if value != plain[name]}
    source = f"validate prediction, {datetime.now(UTC):%Y-%m-%d}, torch {torch.__version__}"
    return [
        Residual(
            gpu=_name_of(device),
            workload={"model": workload.model} | changed,
            batch_size=measured.batch_size,
            counted=counted,
            measured=seen,
            predicted=foreseen,
            source=source,
        )
        for counted, foreseen, seen in figures
        if foreseen is not None and seen is not None
    ]


def _with_prediction(residual: Residual, predicted: float) -> Residual:
    return Residual(**vars(residual) | {"predicted": predicted})


def summarize(
    device: str, residuals: Iterable[Residual], fits: Sequence[Fit], source: Source
) -> PredictionCheck:
    """The check of the figures found.

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
    said = (
        f"On {device} predicted memory is {100 * median(errors):.2f} % off in the median and "
        f"{100 * max(errors):.2f} % at worst, over {len(errors)} figures"
    )
    if promised:
        said += f"; of {len(promised)} batches predicted to fit, {broken} did not"
    return PredictionCheck(
        device=device,
        comparisons=compared,
        fits=list(fits),
        median_error=median(errors),
        worst_error=max(errors),
        false_safe_rate=broken / len(promised) if promised else None,
        source=source,
        verdict=f"{said}.",
    )
