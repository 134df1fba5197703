"""The plan: one workload on every catalogue GPU, and one change at a time on its own GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Protocol

from .. import software
from ..allocator.options import AllocatorOptions
from ..answer.economics import usd_per_million_samples
from ..answer.plan import GpuOption, Plan
from ..answer.recommendation import kept_global_batch
from ..errors import InvalidInput
from ..events import Log
from ..gpus import GIB, GPUS, LOCAL, Gpu
from ..hub import resolve
from ..request import AnalysisRequest, Assumptions, Request
from ..result import Trial
from ..step.building import blaming_the_config
from ..tracing.lowering import cuda_behaviour
from ..workload import Optimizer
from .correction import NO_EXPERIENCE, UNCORRECTED, Correction, Experience
from .intervals import memory_range
from .limits import Limits, find_limits
from .probe import predict_trial
from .traces import Emit, SharedTraces, trace_request


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
        ladder=[],
        room=None,
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
