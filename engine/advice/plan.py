"""The plan: one workload on every GPU of the catalogue, and what changes to it would buy on one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from engine.advice.changes import Change, changes
from engine.allocator.options import AllocatorOptions
from engine.answer.economics import usd_per_million_samples
from engine.answer.recommendation import kept_global_batch
from engine.errors import InvalidInput
from engine.gpus import GIB, GPUS, LOCAL, Gpu
from engine.models.building import blaming_the_config
from engine.models.hub import resolve
from engine.prediction.analysis import Emit, request_traces
from engine.prediction.every_gpu import SharedTraces
from engine.prediction.intervals import memory_range, step_time_range
from engine.prediction.limits import Limits, find_limits
from engine.prediction.probe import predict_trial
from engine.request import AnalysisRequest, Assumptions
from engine.result import GlobalBatch, Trial
from engine.tracing.lowering import cuda_behaviour
from engine.workload import Optimizer, Workload


@dataclass(frozen=True)
class GpuOption:
    """One GPU of the catalogue for a workload. All figures are predicted, prices are assumed.

    Attributes:
        gpu: Its name in the catalogue.
        gpu_name: Its name as people know it.
        total_bytes: Its memory.
        price_per_hour_usd: Of one GPU.
        fits: Whether the smallest batch fits.
        why_not: Why it does not, or why the GPU cannot run the workload at all; else empty.
        largest_batch_size: The largest batch that fits, per GPU.
        recommended_batch_size: The smallest within 5 % of the best speed, safe in memory.
        gradient_accumulation: Micro-batches of that size to one optimizer step.
        samples_per_second: At the recommended batch, on all GPUs that share the work.
        samples_per_second_low, samples_per_second_high: Its interval.
        usd_per_million_samples: At that speed, for all those GPUs.
        hours_per_run: GPU-hours that a run takes there, if it takes the assumed hours on the
            current GPU at the current batch: those hours times the current speed over the speed
            there. ``None`` where no current GPU was named or the current batch does not fit on it.
        usd_per_run: For those hours.
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
    """What a workload would cost on every GPU, and what changes to it would buy on one.

    Attributes:
        model_name: What is trained.
        workload: And how.
        current_gpu: The GPU used today, a name of the catalogue; ``None`` if none was named.
        current_batch_size: The batch size used today.
        assumptions: Hours of a run on the current GPU at the current batch, and runs a year.
        options: Every GPU of the catalogue, in its order.
        cheapest: The GPU that fits at the lowest price per hour; ``None`` if none fits.
        best_value: The one with the lowest cost per million samples.
        fastest: The one with the most samples per second.
        changes: What each change would buy on the current GPU; empty if none was named.
        global_batch: How the global batch is kept on the current GPU; ``None`` if none was asked
            for, or no GPU was named.
        caveats: What a reader has to know about these figures, one sentence each.
    """

    model_name: str
    workload: Workload
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

    def to_dict(self) -> dict[str, object]:
        """The plan as plain JSON values."""
        return asdict(self)


def plan(request: AnalysisRequest, emit: Emit) -> Plan:
    """Put one workload on every GPU of the catalogue, and try changes to it on the current one.

    Args:
        request: Its GPU is the one used today, with the current batch; the assumed hours of a run
            and the assumed price are that GPU's. ``local`` stands for none: then there is no cost
            of a run, and no change is tried.
        emit: Receives log lines.

    Raises:
        InvalidInput: If a price is given for no GPU, or no model can be trained of a given config.
    """
    request = replace(request, workload=resolve(request.workload))
    with blaming_the_config(request.workload):
        return _plan(request, emit)


def _plan(request: AnalysisRequest, emit: Emit) -> Plan:
    here = None if request.gpu == LOCAL else GPUS[request.gpu]
    if here is None and request.assumptions.price_per_hour_usd is not None:
        raise InvalidInput({"price_per_hour_usd": "name the GPU that has this price"})
    predict = _predictor(request, emit)
    speed_today = None
    if here is not None:
        today = predict(here, request.current_batch_size)
        speed_today = today.samples_per_second
    options = [_option(request, gpu, predict, speed_today) for gpu in GPUS.values()]
    fitting = [option for option in options if option.fits]
    own = next((option for option in fitting if option.gpu == request.gpu), None)
    return Plan(
        model_name=request.workload.preset.display_name,
        workload=request.workload,
        current_gpu=None if here is None else here.name,
        current_batch_size=request.current_batch_size,
        assumptions=request.assumptions,
        options=options,
        cheapest=_lowest(fitting, lambda option: option.price_per_hour_usd),
        best_value=_lowest(fitting, lambda option: option.usd_per_million_samples or 0.0),
        fastest=_lowest(fitting, lambda option: -(option.samples_per_second or 0.0)),
        changes=[] if here is None else changes(request, here, emit),
        global_batch=(
            kept_global_batch(request, own.recommended_batch_size)
            if own is not None and own.recommended_batch_size is not None
            else None
        ),
        caveats=_caveats(request, here, speed_today),
    )


def _predictor(request: AnalysisRequest, emit: Emit) -> Callable[[Gpu, int], Trial]:
    """Predicts a batch size on a GPU; those that are traced alike share their traces."""
    traces = SharedTraces(lambda behaviour: request_traces(request, behaviour, emit))
    allocator = AllocatorOptions.parse(request.allocator)

    def predict(gpu: Gpu, batch_size: int) -> Trial:
        step = traces.of(cuda_behaviour(gpu.compute_capability))(batch_size)
        if batch_size == request.current_batch_size:
            step.check_it_runs()
        return predict_trial(request.workload_at(batch_size), gpu, step, allocator)

    return predict


def _option(
    request: AnalysisRequest,
    gpu: Gpu,
    predict: Callable[[Gpu, int], Trial],
    speed_today: float | None,
) -> GpuOption:
    own = request.assumptions.price_per_hour_usd if gpu.name == request.gpu else None
    price = gpu.price_per_hour_usd if own is None else own
    option = GpuOption(gpu.name, gpu.display_name, gpu.total_bytes, price, fits=False)
    try:
        there = replace(request, gpu=gpu.name)
    except InvalidInput as error:
        return replace(option, why_not="; ".join(error.fields.values()))
    limits = find_limits(there, gpu, lambda batch_size: predict(gpu, batch_size))
    if limits.choice is None:
        smallest = predict(gpu, request.batch_multiple)
        needed = (smallest.device_used_bytes or 0) / GIB
        return replace(option, why_not=f"batch {smallest.batch_size:,} needs {needed:,.1f} GiB")
    return _with_speed(option, there, limits, predict(gpu, limits.choice.batch_size), speed_today)


def _with_speed(
    option: GpuOption,
    request: AnalysisRequest,
    limits: Limits,
    recommended: Trial,
    speed_today: float | None,
) -> GpuOption:
    speed = recommended.samples_per_second
    if speed is None:
        raise ValueError(f"batch {recommended.batch_size} is recommended and has no speed")
    price = option.price_per_hour_usd * request.workload.world_size
    hours = request.assumptions.hours_per_run * speed_today / speed if speed_today else None
    times = step_time_range()
    return replace(
        option,
        fits=True,
        largest_batch_size=limits.outcome.largest_batch_size,
        recommended_batch_size=recommended.batch_size,
        gradient_accumulation=request.accumulation_at(recommended.batch_size),
        samples_per_second=speed,
        samples_per_second_low=speed / times.high,
        samples_per_second_high=speed / times.low,
        usd_per_million_samples=usd_per_million_samples(price, speed),
        hours_per_run=hours,
        usd_per_run=None if hours is None else hours * option.price_per_hour_usd,
    )


def _lowest(options: Sequence[GpuOption], figure: Callable[[GpuOption], float]) -> str | None:
    return min(options, key=figure).gpu if options else None


def _caveats(request: AnalysisRequest, here: Gpu | None, speed_today: float | None) -> list[str]:
    caveats = [
        f"Nothing was run: memory ({memory_range().in_words()}) and step times "
        f"({step_time_range().in_words()}) are predicted, prices are assumed. Compare GPUs by "
        "their ratios.",
    ]
    if here is not None and speed_today is None:
        caveats.append(
            f"Batch {request.current_batch_size:,} does not fit on {here.display_name}, so what a "
            "run costs elsewhere is not known."
        )
    if here is not None or request.workload.optimizer is Optimizer.ADAMW_8BIT:
        caveats.append(
            "8-bit AdamW's kernel is assumed to be bound by the bytes it moves, one launch to a "
            "parameter; bitsandbytes also waits for each, which is not predicted."
        )
    if request.memory_limit_bytes is not None:
        caveats.append("The memory limit is left aside: every GPU is taken whole.")
    return caveats
