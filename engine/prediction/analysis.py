"""The analysis of a catalogue GPU: everything predicted, nothing run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from engine.allocator.options import AllocatorOptions
from engine.answer.conclusion import Findings, conclude
from engine.answer.search import SearchOutcome
from engine.errors import DoesNotFit
from engine.events import Event, Log
from engine.gpus import GPUS, Gpu
from engine.models.building import blaming_the_config
from engine.models.hub import resolve
from engine.parallel import interconnect
from engine.prediction.intervals import memory_range, step_time_range
from engine.prediction.limits import find_limits
from engine.prediction.probe import predict_trial
from engine.prediction.timeline import largest_tensors, timeline
from engine.request import LARGEST_BATCH_SIZE, AnalysisRequest, Question
from engine.result import AnalysisResult, GpuFacts, Source, Trial
from engine.tracing.lowering import CudaBehaviour, cuda_behaviour
from engine.tracing.trace import NotAffine, Trace
from engine.tracing.tracer import TraceAt, trace, trace_every_batch_size
from engine.workload import Workload

_NOTHING_RUN = (
    "Nothing was run: memory comes from a trace of the training step replayed through a model of "
    "PyTorch's caching allocator."
)
_CONVOLUTIONS = (
    "cuDNN's convolution workspaces are not predicted: it takes a smaller one where memory is "
    "short, so they raise the memory used more than they lower the largest batch."
)

_CURVE_POINTS = 24

Emit = Callable[[Event], None]
Probe = Callable[[int], Trial]
TraceRequest = Callable[[AnalysisRequest, CudaBehaviour | None, Emit], TraceAt]
"""How the traces of a request's workload come about; :func:`request_traces` makes them."""


def analyze_predicted(
    request: AnalysisRequest,
    emit: Emit,
    known: Mapping[int, Trial] = MappingProxyType({}),
    traced: TraceRequest | None = None,
) -> AnalysisResult:
    """Predict the answer for a GPU of the catalogue.

    Args:
        request: The question; its GPU is one of the catalogue.
        emit: Receives log lines and trials as they come.
        known: By batch size, trials of the same request that need not be made again.
        traced: Gives the workload's traces; ``None`` makes them.

    Raises:
        DoesNotFit: If not even the smallest batch does.
    """
    gpu = catalogue_gpu(request)
    traced = traced or request_traces
    trace_at = traced(request, cuda_behaviour(gpu.compute_capability), emit)
    allocator = AllocatorOptions.parse(request.allocator)

    @cache
    def predict(batch_size: int) -> Trial:
        workload = request.workload_at(batch_size)
        return predict_trial(workload, gpu, trace_at(batch_size), allocator)

    def refusal(smallest: Trial) -> DoesNotFit:
        return does_not_fit(request, smallest, gpu.display_name)

    found = find_out(request, gpu, predict, trace_at, refusal, emit, known)
    caveats = [_NOTHING_RUN, *found.caveats, *interconnect.caveats(request.workload, gpu)]
    return conclude(request, replace(found, caveats=caveats))


def find_out(
    request: Question,
    gpu: Gpu,
    predict: Probe,
    trace_at: TraceAt,
    refusal: Callable[[Trial], DoesNotFit],
    emit: Emit,
    known: Mapping[int, Trial] = MappingProxyType({}),
) -> Findings:
    """Search for the limit and for the batch to recommend, whatever is trained.

    Args:
        request: The question.
        gpu: Where.
        predict: The trial of a batch size.
        trace_at: The trace of a batch size.
        refusal: What is raised if the smallest batch, whose trial it is given, does not fit.
        emit: Receives log lines and trials as they come.
        known: By batch size, trials that need not be made again.

    Raises:
        DoesNotFit: The refusal.
        NeedsTwoSamples: If the current batch is one that no step runs at.
    """
    trace_at(request.current_batch_size).check_it_runs()
    probe = telling(predict, emit, known)
    current = probe(request.current_batch_size)
    limits = find_limits(request, gpu, predict, probe=probe, known=[current])
    outcome, choice = limits.outcome, limits.choice
    if choice is None:
        raise refusal(probe(request.batch_multiple))
    recommended, step = probe(choice.batch_size), trace_at(choice.batch_size)
    return Findings(
        gpu=facts_of(gpu),
        outcome=outcome,
        current=current,
        recommended=recommended,
        curve=curve(predict, outcome, request),
        price_per_hour_usd=price_per_hour(request, gpu),
        source=Source.PREDICTED,
        bound=choice.bound,
        safe_batch_size=limits.safe_batch_size,
        caveats=_caveats(step, outcome, limits.safe_batch_size),
        timeline=timeline(step),
        largest_tensors=largest_tensors(step),
    )


def telling(run: Probe, emit: Emit, known: Mapping[int, Trial] = MappingProxyType({})) -> Probe:
    """A probe that tells of each batch size when it is first tried, and tries none twice.

    Args:
        run: Makes a trial.
        emit: Is told of it.
        known: By batch size, trials that were made and told of before.
    """

    @cache
    def probe(batch_size: int) -> Trial:
        if batch_size in known:
            return known[batch_size]
        trial = run(batch_size)
        emit(trial)
        emit(Log(in_words(trial)))
        return trial

    return probe


def predict_batch(
    request: AnalysisRequest, emit: Emit, traced: TraceRequest | None = None
) -> tuple[GpuFacts, Trial]:
    """Predict one batch size, the request's current one, on a GPU of the catalogue.

    Args:
        request: The question.
        emit: Receives log lines.
        traced: Gives the workload's traces at every batch size; ``None`` traces this one only,
            which is quicker where no other is asked for.

    Raises:
        InvalidInput: If the model's config cannot be had, or no model can be trained of it.
    """
    request = replace(request, workload=resolve(request.workload))
    gpu = catalogue_gpu(request)
    behaviour = cuda_behaviour(gpu.compute_capability)
    batch_size = request.current_batch_size
    workload = request.workload_at(batch_size)
    with blaming_the_config(workload):
        if traced is None:
            emit(Log(f"Tracing batch {batch_size:,}"))
            step = trace(workload, batch_size, behaviour)
        else:
            step = traced(request, behaviour, emit)(batch_size)
    step.check_it_runs()
    trial = predict_trial(workload, gpu, step, AllocatorOptions.parse(request.allocator))
    return facts_of(gpu), trial


def catalogue_gpu(request: Question) -> Gpu:
    """The catalogue GPU of a request, with less memory if the request says so.

    Raises:
        DoesNotFit: If the memory limit leaves nothing beside the CUDA context.
    """
    gpu = GPUS[request.gpu]
    limit = request.memory_limit_bytes
    if limit is None or limit >= gpu.total_bytes:
        return gpu
    if limit <= gpu.context_bytes:
        raise DoesNotFit(
            f"the memory limit of {_gib(limit)} leaves nothing for tensors: the CUDA context alone "
            f"takes {_gib(gpu.context_bytes)}; give a larger limit"
        )
    name = f"{gpu.display_name} limited to {_gib(limit)}"
    return replace(gpu, display_name=name, total_bytes=limit)


def facts_of(gpu: Gpu) -> GpuFacts:
    """What an answer says of a catalogue GPU."""
    return GpuFacts(gpu.display_name, gpu.total_bytes, gpu.usable_bytes)


def price_per_hour(request: Question, gpu: Gpu) -> float:
    """The price that holds, in USD: the request's own, else the catalogue's."""
    own = request.assumptions.price_per_hour_usd
    return gpu.price_per_hour_usd if own is None else own


def traces(workload: Workload, behaviour: CudaBehaviour | None, emit: Emit) -> TraceAt:
    """The workload's traces at any batch size: from two of them, or one by one where those fail.

    Args:
        workload: What is trained.
        behaviour: Of the GPU; ``None`` traces what the CPU does.
        emit: Receives log lines.
    """
    name = workload.preset.display_name
    emit(Log(f"Building {name} from its config, with no weights, on fake tensors"))
    try:
        trace_at = trace_every_batch_size(workload, behaviour)
    except NotAffine as error:
        emit(Log(f"{error}; tracing each batch size by itself", "warning"))
        return cache(lambda batch_size: trace(workload, batch_size, behaviour))
    step = trace_at(2)
    emit(
        Log(
            f"Traced two training steps at two batch sizes: {len(step.operations):,} operations a "
            f"step, {len(step.sizes):,} tensors, each a straight line in the batch size"
        )
    )
    return trace_at


def request_traces(
    request: AnalysisRequest, behaviour: CudaBehaviour | None, emit: Emit
) -> TraceAt:
    """The traces of a request's workload."""

    def made(accumulation: int) -> TraceAt:
        workload = replace(request.workload, gradient_accumulation=accumulation)
        return traces(workload, behaviour, emit)

    return by_accumulation(request, made)


def by_accumulation(request: Question, made: Callable[[int], TraceAt]) -> TraceAt:
    """The traces of a question whose step accumulates at some batch sizes only.

    Args:
        request: Says how many micro-batches a step has at a batch size.
        made: Traces with so many micro-batches to a step: 1, or 2 for any larger number, since from
            the second one on each is like the one before.
    """
    made = cache(made)
    return lambda batch_size: made(min(request.accumulation_at(batch_size), 2))(batch_size)


def in_words(trial: Trial) -> str:
    """One line about a trial for the log."""
    fits = "fits" if trial.fits else "does not fit"
    figures = [f"batch {trial.batch_size:,} {fits}"]
    if trial.peak_allocated_bytes is not None:
        figures.append(f"peak allocated {_gib(trial.peak_allocated_bytes)}")
    if trial.peak_reserved_bytes is not None:
        figures.append(f"peak reserved {_gib(trial.peak_reserved_bytes)}")
    if trial.step_seconds is not None and trial.fits:
        figures.append(
            f"{trial.step_seconds * 1000:,.1f} ms a step, {trial.samples_per_second:,.0f} samples/s"
        )
    return f"{', '.join(figures)} ({trial.source})"


def does_not_fit(request: AnalysisRequest, smallest: Trial, device: str) -> DoesNotFit:
    """The failure of a workload that does not fit at all, with what to do about it."""
    needed = smallest.device_used_bytes or smallest.peak_allocated_bytes
    needs = f" needs {_gib(needed)}" if needed is not None else " does not fit"
    size = "a shorter sequence" if request.workload.sequence_length else "smaller images"
    limited = request.memory_limit_bytes is not None
    more = "a larger memory limit" if limited else "a GPU with more memory"
    if request.batch_multiple > 1:  # a smaller batch may fit, which nobody has looked at
        more = f"a batch multiple of 1 (only multiples of {request.batch_multiple} count), {more}"
    return DoesNotFit(
        f"{request.workload.preset.display_name} does not fit: batch {smallest.batch_size}{needs} "
        f"on {device}. Choose {more}, {size}, a lower precision or an optimizer with less state."
    )


def curve(predict: Probe, outcome: SearchOutcome, request: Question) -> list[Trial]:
    """Trials from a small batch to a little beyond the limit, evenly spaced, for a chart."""
    multiple = request.batch_multiple
    end = min(math.ceil(outcome.next_batch_size * 1.1 / multiple), LARGEST_BATCH_SIZE // multiple)
    units = {max(1, round(end * point / _CURVE_POINTS)) for point in range(1, _CURVE_POINTS + 1)}
    return [predict(unit * multiple) for unit in sorted(units)]


def _caveats(step: Trace, outcome: SearchOutcome, safe: int) -> list[str]:
    caveats = [
        "Step times assume 60 % of the GPU's peak compute and 75 % of its peak bandwidth: "
        f"{step_time_range().in_words()}. Their ratios are more reliable than the times.",
        "The GPU is taken to be free: another process on it, or a display, takes its share.",
    ]
    memory = memory_range().in_words()
    if safe == 0:
        caveats.append(
            f"Predicted memory may be off by {memory}: no batch is sure to fit on this GPU."
        )
    elif safe < outcome.largest_batch_size:
        caveats.append(
            f"Predicted memory may be off by {memory}: batch {safe:,} fits even at the high end."
        )
    if any("convolution" in operation.name for operation in step.operations):
        caveats.append(_CONVOLUTIONS)
    if not outcome.next_batch_size_fails:
        caveats.append(f"No batch larger than {LARGEST_BATCH_SIZE:,} is tried.")
    return caveats


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
