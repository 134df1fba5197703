"""The plan: one workload on every catalogue GPU, and one change at a time on its own GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any, Protocol

from torch._subclasses.fake_tensor import DataDependentOutputException

from .. import software
from ..allocator.options import AllocatorOptions
from ..answer.economics import usd_per_million_samples
from ..answer.recommendation import kept_global_batch
from ..errors import EngineError, InvalidInput
from ..events import Event, Log
from ..gpus import GIB, GPUS, LOCAL, Gpu
from ..hub import resolve
from ..request import AnalysisRequest, Assumptions, Request
from ..result import GlobalBatch, Trial
from ..step.building import blaming_the_config
from ..tracing.lowering import cuda_behaviour
from ..workload import Optimizer, Precision, Workload
from .correction import NO_EXPERIENCE, UNCORRECTED, Correction, Experience
from .intervals import memory_range
from .limits import Limits, find_limits
from .probe import predict_trial
from .traces import Emit, SharedTraces, trace_request

LORA_RANK = 8

_NOT_PREDICTED = "such a step depends on the values of tensors, which a prediction does not have"


@dataclass(frozen=True)
class Change:
    """A workload with one thing changed.

    Attributes:
        name: What is changed; ``as it is`` for the unchanged workload.
        fields: The fields that change, with their new values.
        applies: Whether the model can be trained that way.
        why_not: Why it cannot; empty if it can.
        largest_batch_size: The largest batch that fits; 0 if none does.
        recommended_batch_size: The one to train with there.
        samples_per_second: At that batch.
        speedup: Over the unchanged workload at its own recommended batch; ``None`` where one of
            them fits no batch.
        current_used_bytes: Device memory that the current batch takes, or would need.
        saved_bytes: How much less that is than for the unchanged workload; negative if more.
    """

    name: str
    fields: dict[str, Any]
    applies: bool = True
    why_not: str = ""
    largest_batch_size: int = 0
    recommended_batch_size: int | None = None
    samples_per_second: float | None = None
    speedup: float | None = None
    current_used_bytes: int | None = None
    saved_bytes: int | None = None


def changes(
    request: AnalysisRequest,
    gpu: Gpu,
    emit: Callable[[Event], None],
    correction: Correction = UNCORRECTED,
) -> list[Change]:
    """Predict each change that may help on the request's GPU.

    Args:
        request: The unchanged workload.
        gpu: Its GPU.
        emit: Receives log lines.
        correction: Of the unchanged workload's step times. It applies to every change, or what was
            measured of the workload alone would look like a gain.

    Returns:
        The unchanged workload, then every change. One that is not possible says why.
    """
    base = _predicted(Change("as it is", {}), request, gpu, correction)
    found = [base]
    for name, fields in _candidates(request.workload, gpu):
        emit(Log(f"Trying {name}"))
        change = Change(name, fields)
        try:
            changed = replace(request, workload=replace(request.workload, **fields))
            change = _predicted(change, changed, gpu, correction)
        except InvalidInput as error:
            change = replace(change, applies=False, why_not="; ".join(error.fields.values()))
        except EngineError as error:
            change = replace(change, applies=False, why_not=str(error))
        except DataDependentOutputException:
            change = replace(change, applies=False, why_not=_NOT_PREDICTED)
        found.append(_compared(base, change))
    return found


def _candidates(workload: Workload, gpu: Gpu) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the fields of each change that would make a difference."""
    if workload.precision in (Precision.FP32, Precision.TF32):
        if workload.precision is Precision.FP32 and gpu.tf32_flops is not None:
            yield "tf32", {"precision": Precision.TF32}
        half = Precision.FP16_MIXED if gpu.bf16_flops is None else Precision.BF16_MIXED
        yield str(half), {"precision": half}
    if not workload.gradient_checkpointing:
        if workload.use_cache:
            yield "no key-value cache", {"use_cache": False}
        yield "gradient checkpointing", {"gradient_checkpointing": True}
    for optimizer in (Optimizer.ADAMW_8BIT, Optimizer.ADAFACTOR, Optimizer.SGD_MOMENTUM):
        if workload.optimizer not in (optimizer, Optimizer.NONE, Optimizer.SGD):
            yield f"optimizer {optimizer}", {"optimizer": optimizer}
    if workload.lora_rank is None and not workload.frozen_backbone:
        yield f"LoRA, rank {LORA_RANK}", {"lora_rank": LORA_RANK}


def _predicted(
    change: Change, request: AnalysisRequest, gpu: Gpu, correction: Correction
) -> Change:
    trace_at = trace_request(request, cuda_behaviour(gpu.compute_capability), lambda _: None)
    allocator = AllocatorOptions.parse(request.allocator)

    @cache
    def predict(batch_size: int, *, careful: bool = False) -> Trial:
        workload, step = request.workload_at(batch_size), trace_at(batch_size)
        return predict_trial(workload, gpu, step, allocator, careful=careful, correction=correction)

    limits: Limits = find_limits(request, gpu, predict, careful=partial(predict, careful=True))
    change = replace(
        change,
        largest_batch_size=limits.outcome.largest_batch_size,
        current_used_bytes=predict(request.current_batch_size).device_used_bytes,
    )
    if limits.choice is None:
        return change
    recommended = predict(limits.choice.batch_size)
    return replace(
        change,
        recommended_batch_size=recommended.batch_size,
        samples_per_second=recommended.samples_per_second,
    )


def _compared(base: Change, change: Change) -> Change:
    """The change with its differences from the unchanged workload."""
    speedup = saved = None
    if base.samples_per_second and change.samples_per_second:
        speedup = change.samples_per_second / base.samples_per_second
    if base.current_used_bytes is not None and change.current_used_bytes is not None:
        saved = base.current_used_bytes - change.current_used_bytes
    return replace(change, speedup=speedup, saved_bytes=saved)


@dataclass(frozen=True)
class GpuOption:
    """A workload on one catalogue GPU. All numbers are predicted, prices are assumed.

    Attributes:
        gpu: Its name in the catalogue.
        gpu_name: Its display name.
        price_per_hour_usd: Of one GPU.
        fits: Whether the smallest batch fits.
        why_not: Why it does not, or why the GPU cannot run the workload at all; else empty.
        largest_batch_size: The largest batch that fits, per GPU.
        recommended_batch_size: The one to train with there.
        gradient_accumulation: Micro-batches of that size to one optimizer step.
        samples_per_second: At the recommended batch, on all GPUs that share the work.
        samples_per_second_low, samples_per_second_high: Its interval.
        usd_per_million_samples: At that speed, for all those GPUs.
        hours_per_run: GPU-hours of a run there: the assumed hours, which are those on the current
            GPU at the current batch, times the speed here over the speed there. ``None`` if no
            current GPU is set or the current batch does not fit on it.
    """

    gpu: str
    gpu_name: str
    total_bytes: int
    price_per_hour_usd: float
    fits: bool
    why_not: str = ""
    largest_batch_size: int = 0
    recommended_batch_size: int | None = None
    gradient_accumulation: int | None = None
    samples_per_second: float | None = None
    samples_per_second_low: float | None = None
    samples_per_second_high: float | None = None
    usd_per_million_samples: float | None = None
    hours_per_run: float | None = None
    usd_per_run: float | None = None


@dataclass(frozen=True)
class Plan:
    """A workload on every GPU, and with each change on the current one.

    Attributes:
        model_name: What is trained.
        workload: How; ``None`` for a script, whose code says so.
        current_gpu: The GPU used today, by its catalogue name; ``None`` if none is set.
        current_batch_size: The batch size used today.
        assumptions: Hours of a run on the current GPU at the current batch, and runs per year.
        options: Every GPU of the catalogue, in its order.
        cheapest: The GPU that fits at the lowest price per hour; ``None`` if none fits.
        best_value: The one with the lowest cost per million samples.
        fastest: The one with the most samples per second.
        changes: On the current GPU; empty if none is set.
        global_batch: How the global batch is kept on the current GPU; ``None`` if there is none.
        software: As in :class:`~engine.result.AnalysisResult`.
    """

    model_name: str
    workload: Workload | None
    current_gpu: str | None
    current_batch_size: int
    assumptions: Assumptions
    options: list[GpuOption]
    cheapest: str | None
    best_value: str | None
    fastest: str | None
    changes: list[Change]
    global_batch: GlobalBatch | None
    caveats: list[str]
    software: dict[str, str]

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def plan(request: AnalysisRequest, emit: Emit, experience: Experience = NO_EXPERIENCE) -> Plan:
    """Predict one workload on every catalogue GPU, and changes to it on the current one.

    Args:
        request: Its GPU is the one used today; the assumed hours of a run and the assumed price
            are that GPU's. With ``local`` there is no such GPU, so no cost of a run, and no change
            is tried.
        emit: Receives log lines.
        experience: The steps that were measured before.

    Raises:
        InvalidInput: If a price is set without a GPU, or the config does not give a model.
    """
    request = replace(request, workload=resolve(request.workload))
    with blaming_the_config(request.workload):
        return _plan(request, emit, experience)


def _plan(request: AnalysisRequest, emit: Emit, experience: Experience) -> Plan:
    here = gpu_today(request.gpu, request.assumptions)
    used = software.of_workload(request.workload)
    warned = software.caveat(request.workload.software, used)
    for caveat in warned:
        emit(Log(caveat, "warning"))
    assumed = []
    if here is not None or request.workload.optimizer is Optimizer.ADAMW_8BIT:
        assumed.append(
            "The kernel of 8-bit AdamW is assumed to be bound by memory bandwidth, with one launch "
            "per parameter. bitsandbytes also waits for each launch, which is not predicted."
        )
    correction = UNCORRECTED if here is None else experience.of(request.workload, here.name)
    learned = correction.caveats(request.current_batch_size)
    found = compare_gpus(
        request.workload.preset.display_name,
        request,
        here,
        _predictor(request, emit, experience),
        lambda gpu: replace(request, gpu=gpu.name),
    )
    return replace(
        found,
        workload=request.workload,
        changes=[] if here is None else changes(request, here, emit, correction),
        caveats=[*warned, *found.caveats, *learned, *assumed],
        software=used,
    )


def gpu_today(name: str, assumptions: Assumptions) -> Gpu | None:
    """The GPU used today; ``None`` for ``local``, which is no GPU of the catalogue.

    Raises:
        InvalidInput: If a price is set without a GPU.
    """
    if name != LOCAL:
        return GPUS[name]
    if assumptions.price_per_hour_usd is not None:
        raise InvalidInput({"price_per_hour_usd": "choose the GPU that has this price"})
    return None


def compare_gpus(
    name: str,
    request: Request,
    here: Gpu | None,
    predict: Predict,
    on: Callable[[Gpu], Request],
) -> Plan:
    """Compare every catalogue GPU for a workload or a script.

    Args:
        name: What is trained.
        request: The current batch, the assumptions and the global batch.
        here: The GPU used today.
        predict: The trial of a batch size on a GPU.
        on: The request for another GPU; raises ``InvalidInput`` where it cannot run there.
    """
    speed_today = None
    if here is not None:
        speed_today = predict(here, request.current_batch_size).samples_per_second
    options = [_option(request, here, gpu, predict, on, speed_today) for gpu in GPUS.values()]
    fitting = [option for option in options if option.fits]
    own = next((one for one in fitting if here is not None and one.gpu == here.name), None)
    return Plan(
        model_name=name,
        workload=None,
        current_gpu=None if here is None else here.name,
        current_batch_size=request.current_batch_size,
        assumptions=request.assumptions,
        options=options,
        cheapest=_lowest(fitting, lambda option: option.price_per_hour_usd),
        best_value=_lowest(fitting, lambda option: option.usd_per_million_samples or 0.0),
        fastest=_lowest(fitting, lambda option: -(option.samples_per_second or 0.0)),
        changes=[],
        global_batch=(
            kept_global_batch(request, own.recommended_batch_size)
            if own is not None and own.recommended_batch_size is not None
            else None
        ),
        caveats=_caveats(request, here, speed_today),
        software={},
    )


class Predict(Protocol):
    """Predicts the trial of a batch size on a GPU; ``careful`` as in :func:`predict_trial`."""

    def __call__(self, gpu: Gpu, batch_size: int, *, careful: bool = False) -> Trial: ...


def _predictor(request: AnalysisRequest, emit: Emit, experience: Experience) -> Predict:
    """A function that predicts a batch size on a GPU; GPUs that are traced alike share traces."""
    traces = SharedTraces(lambda behaviour: trace_request(request, behaviour, emit))
    allocator = AllocatorOptions.parse(request.allocator)

    @cache
    def correction(gpu: str) -> Correction:
        return experience.of(request.workload, gpu)

    def predict(gpu: Gpu, batch_size: int, *, careful: bool = False) -> Trial:
        step = traces.of(cuda_behaviour(gpu.compute_capability))(batch_size)
        if batch_size == request.current_batch_size:
            step.check_runnable()
        workload = request.workload_at(batch_size)
        return predict_trial(
            workload, gpu, step, allocator, careful=careful, correction=correction(gpu.name)
        )

    return predict


def _option(
    request: Request,
    here: Gpu | None,
    gpu: Gpu,
    predict: Predict,
    on: Callable[[Gpu], Request],
    speed_today: float | None,
) -> GpuOption:
    own = request.assumptions.price_per_hour_usd if gpu == here else None
    price = gpu.price_per_hour_usd if own is None else own
    option = GpuOption(gpu.name, gpu.display_name, gpu.total_bytes, price, fits=False)
    try:
        there = on(gpu)
    except InvalidInput as error:
        return replace(option, why_not="; ".join(error.fields.values()))
    limits = find_limits(
        there, gpu, partial(predict, gpu), careful=partial(predict, gpu, careful=True)
    )
    if limits.choice is None:
        smallest = predict(gpu, limits.batch_multiple)
        needed = (smallest.device_used_bytes or 0) / GIB
        return replace(option, why_not=f"batch {smallest.batch_size:,} needs {needed:,.1f} GiB")
    return _with_speed(option, there, limits, predict(gpu, limits.choice.batch_size), speed_today)


def _with_speed(
    option: GpuOption,
    request: Request,
    limits: Limits,
    recommended: Trial,
    speed_today: float | None,
) -> GpuOption:
    speed, seconds = recommended.samples_per_second, recommended.step_seconds
    shortest, longest = recommended.step_seconds_low, recommended.step_seconds_high
    if not (speed and seconds and shortest and longest):
        raise ValueError(f"batch {recommended.batch_size} is recommended and has no speed")
    price = option.price_per_hour_usd * request.world_size
    hours = request.assumptions.hours_per_run * speed_today / speed if speed_today else None
    return replace(
        option,
        fits=True,
        largest_batch_size=limits.outcome.largest_batch_size,
        recommended_batch_size=recommended.batch_size,
        gradient_accumulation=request.accumulation_at(recommended.batch_size),
        samples_per_second=speed,
        samples_per_second_low=speed * seconds / longest,
        samples_per_second_high=speed * seconds / shortest,
        usd_per_million_samples=usd_per_million_samples(price, speed),
        hours_per_run=hours,
        usd_per_run=None if hours is None else hours * option.price_per_hour_usd,
    )


def _lowest(options: Sequence[GpuOption], value: Callable[[GpuOption], float]) -> str | None:
    return min(options, key=value).gpu if options else None


def _caveats(request: Request, here: Gpu | None, speed_today: float | None) -> list[str]:
    caveats = [
        f"Nothing was run. Memory ({memory_range()}) and step times are predicted, and prices are "
        "assumed. Ratios between GPUs are more reliable.",
    ]
    if here is not None and speed_today is None:
        caveats.append(
            f"Batch {request.current_batch_size:,} does not fit on {here.display_name}, so the "
            "cost of a run on other GPUs is not known."
        )
    if request.memory_limit_bytes is not None:
        caveats.append("The memory limit is ignored: every GPU is assumed to be used whole.")
    return caveats
