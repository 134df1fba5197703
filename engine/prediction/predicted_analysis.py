"""The analysis for a catalogue GPU: everything is predicted, nothing is run."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Protocol

from ..allocator.options import AllocatorOptions
from ..answer.conclusion import Findings, conclude
from ..answer.recommendation import is_friendly
from ..answer.search import SearchOutcome
from ..core.errors import DoesNotFit, InvalidInput
from ..core.numbers import ms, rate
from ..core.sizes import gib
from ..events import Emit, Log, Stage
from ..gpus import GPUS, HOW_TO_LIST, Gpu
from ..gpus.known import known_gpus
from ..interface.request import MAX_BATCH_SIZE, AnalysisRequest, Request
from ..interface.result import AnalysisResult, PhaseName, StepProfile
from ..interface.trial import GpuFacts, Probe, Trial
from ..parallel import interconnect
from ..step.building import cache_caveats, code_caveats
from ..step.eight_bits import outlier_caveats
from ..step.methods import method_caveats
from ..step.optimizers import paged_caveats, refresh_caveats
from ..traces.lengths import about_lengths, lengths_of
from ..traces.source import TraceSource
from ..traces.workloads import KeptTraces
from ..tracing.lowering import behaviour_of
from .caveats import (
    NOTHING_RUN,
    caveats_of,
    gpu_caveats,
    host_caveats,
    negatives_caveats,
    smaller_multiple_caveat,
    waiting_caveats,
    whole_experts,
)
from .colocation import vllm_caveats, why_vllm_fails
from .correction import NO_EXPERIENCE, Correction, Experience
from .evaluation import evaluation_caveats, needs_most, why_evaluation_fails
from .limits import find_limits
from .measured_host import on_measured_host
from .phases import largest_phase, phases_of
from .probe import predict_fit, predict_step, predict_trial, speed_of
from .refusals import does_not_fit
from .rollouts import rollout_caveats
from .step_profile import step_profile
from .step_time import host_decides, ratio_span
from .timeline import largest_tensors, timeline
from .work import StepTime

_CURVE_POINTS = 24


class Predict(Protocol):
    """Predicts the trial of a batch size; ``careful`` as in :func:`predict_trial`."""

    def __call__(self, batch_size: int, *, careful: bool = False) -> Trial: ...


def analyze_predicted(
    request: AnalysisRequest,
    emit: Emit,
    known: Mapping[int, Trial] = MappingProxyType({}),
    traced: KeptTraces | None = None,
    experience: Experience = NO_EXPERIENCE,
) -> AnalysisResult:
    """Predict the answer for a catalogue GPU.

    Args:
        request: Its GPU is one of the catalogue.
        emit: Receives log lines and trials as they come.
        known: Trials of the same request, by batch size, that need not be made again.
        traced: Traces the workload; by default :class:`KeptTraces`.
        experience: The steps that were measured before.

    Raises:
        DoesNotFit: If not even the smallest batch does.
    """
    gpu = catalogue_gpu(request)
    traces = (traced or KeptTraces()).of(request, behaviour_of(gpu), emit)
    emit(Stage("search"))
    correction = experience.of(request.workload, gpu.name)
    gpu, correction = on_measured_host(gpu, request, correction, traces)
    prediction = Prediction(request, gpu, traces, correction)

    def refusal(smallest: Trial) -> DoesNotFit:
        if needs_most(traces.at(smallest.batch_size)):
            return DoesNotFit(why_evaluation_fails(request, gpu, smallest))
        if why := why_vllm_fails(request.workload, gpu):
            return DoesNotFit(f"{why}.")
        trained = request.workload_at(smallest.batch_size)
        beside = whole_experts(trained, traces.at(smallest.batch_size))
        return does_not_fit(request, smallest, gpu_facts(gpu), beside)

    found = prediction.findings(refusal, emit, known)
    profiled = found.current or found.recommended
    return conclude(request, replace(found, profile=prediction.profile(profiled.batch_size)))


class Prediction:
    """Predictions for one workload on one GPU; each batch size once.

    Args:
        request: The request for the workload.
        gpu: The GPU.
        traces: The traces of the workload there.
        correction: Correction of its step times by measured steps.
    """

    def __init__(
        self, request: AnalysisRequest, gpu: Gpu, traces: TraceSource, correction: Correction
    ) -> None:
        self.request, self.gpu, self.traces = request, gpu, traces
        self._allocator = AllocatorOptions.parse(request.allocator)
        self._correction = correction
        self._trials: dict[tuple[int, bool], Trial] = {}
        self._step_times: dict[int, StepTime] = {}

    def predict(self, batch_size: int, *, careful: bool = False) -> Trial:
        """The trial of a batch size; ``careful`` as in :func:`predict_trial`."""
        key = (batch_size, careful)
        if key not in self._trials:
            self._trials[key] = predict_trial(
                self.request.workload_at(batch_size),
                self.gpu,
                self.traces.at(batch_size),
                self._allocator,
                careful=careful,
                correction=self._correction,
            )
        return self._trials[key]

    def fit(self, batch_size: int, *, careful: bool = False) -> Trial:
        """The same with its memory alone, to search with."""
        workload, step = self.request.workload_at(batch_size), self.traces.at(batch_size)
        return predict_fit(workload, self.gpu, step, self._allocator, careful=careful)

    def speed(self, batch_size: int) -> float:
        """Samples per second of a batch size that fits."""
        workload, trace = self.request.workload_at(batch_size), self.traces.at(batch_size)
        return speed_of(workload, trace, self.step_time(batch_size), self._correction)

    def starting_batch_size(self) -> int:
        """The recommended batch where there is no current one; the smallest if nothing fits."""
        careful = partial(self.predict, careful=True)
        limits = find_limits(
            self.request,
            self.gpu,
            self.predict,
            careful=careful,
            speed=self.speed,
            step_time=self.step_time,
        )
        return limits.choice.batch_size if limits.choice else limits.batch_multiple

    def step_time(self, batch_size: int) -> StepTime:
        """The time of a step in its parts."""
        if batch_size not in self._step_times:
            workload, step = self.request.workload_at(batch_size), self.traces.at(batch_size)
            self._step_times[batch_size] = predict_step(workload, self.gpu, step)
        return self._step_times[batch_size]

    def findings(
        self,
        refusal: Callable[[Trial], DoesNotFit],
        emit: Emit,
        known: Mapping[int, Trial] = MappingProxyType({}),
        *,
        stays: bool = False,
    ) -> Findings:
        """Findings about the workload, with its caveats; see :func:`predict_findings`."""
        found = predict_findings(
            self.request,
            self.gpu,
            self.predict,
            self.step_time,
            self.traces,
            refusal,
            emit,
            known,
            self.speed,
            stays=stays,
        )
        trained = self.request.workload_at(found.recommended.batch_size)
        step = self.traces.at(found.recommended.batch_size)
        caveats = [
            NOTHING_RUN,
            *evaluation_caveats(self.request, self.gpu, step),
            *gpu_caveats(self.gpu),
            *self._correction.caveats(found.recommended.batch_size),
            *found.caveats,
            *about_lengths(trained, found.recommended.batch_size),
            *cache_caveats(trained),
            *code_caveats(trained),
            *method_caveats(trained),
            *rollout_caveats(trained, step),
            *vllm_caveats(trained, self.gpu, step),
            *paged_caveats(trained),
            *outlier_caveats(trained),
            *whole_experts(trained, step),
            *negatives_caveats(trained),
            *refresh_caveats(trained),
            *interconnect.caveats(trained, self.gpu),
        ]
        lengths = lengths_of(trained, found.recommended.batch_size)
        phases = phases_of(trained, self.gpu, step, found.recommended.source)
        limiting = self._limiting_phase(found)
        return replace(
            found, caveats=caveats, lengths=lengths, phases=phases, limiting_phase=limiting
        )

    def profile(self, batch_size: int) -> StepProfile:
        """The parts of a step of a batch size."""
        trained, step = self.request.workload_at(batch_size), self.traces.at(batch_size)
        return step_profile(step, self.gpu, trained.precision, trained.gradient_accumulation)

    def _limiting_phase(self, found: Findings) -> PhaseName | None:
        """The phase in which the batch beyond the largest does not fit."""
        if not found.outcome.next_batch_size_fails:
            return None
        beyond = found.outcome.next_batch_size
        return largest_phase(self.request.workload_at(beyond), self.gpu, self.traces.at(beyond))


def predict_findings(
    request: Request,
    gpu: Gpu,
    predict: Predict,
    step_time: Callable[[int], StepTime],
    traces: TraceSource,
    refusal: Callable[[Trial], DoesNotFit],
    emit: Emit,
    known: Mapping[int, Trial] = MappingProxyType({}),
    speed: Callable[[int], float] | None = None,
    *,
    stays: bool = False,
) -> Findings:
    """Search for the limit and for the batch to recommend, for a model or a custom step.

    Args:
        request: The current batch, the batch multiple and the global batch.
        gpu: The GPU.
        predict: The trial of a batch size.
        step_time: The time of a step of that batch, in its parts.
        traces: The traces of the model or the custom step.
        refusal: Makes the error to raise if the smallest batch, whose trial it is given, does not
            fit.
        emit: Receives log lines and trials as they come.
        known: Trials by batch size that need not be made again.
        speed: As in :func:`find_limits`.
        stays: Whether the current batch, which fits, is to be kept.

    Raises:
        DoesNotFit: The refusal.
        NeedsTwoSamples: If no step runs at the current batch, or at the one to start with.
    """
    careful = partial(predict, careful=True)
    probe = reporting_probe(careful, emit, known)
    current = None
    if request.current_batch_size is not None:
        traces.at(request.current_batch_size).check_runnable()
        current = probe(request.current_batch_size)
    limits = find_limits(
        request,
        gpu,
        predict,
        careful=careful,
        probe=probe,
        known=[] if current is None else [current],
        speed=speed,
        step_time=step_time,
    )
    outcome, choice = limits.outcome, limits.choice
    if choice is None:
        raise refusal(probe(limits.batch_multiple))
    if stays:
        choice = replace(choice, batch_size=request.known_batch_size, foregone=None)
    shown = [choice.fastest, *([choice.foregone.batch_size] if choice.foregone else [])]
    outcome = replace(outcome, trials=[*outcome.trials, *map(probe, shown)])
    step = traces.at(choice.batch_size)
    if current is None:
        step.check_runnable()
    recommended = probe(choice.batch_size)
    compared = current or recommended
    times = step_time(compared.batch_size), step_time(recommended.batch_size)
    waits = compared.batch_size if times[0].launch_limited else None
    return Findings(
        gpu=gpu_facts(gpu),
        outcome=outcome,
        current=current,
        recommended=recommended,
        fastest_batch_size=choice.fastest,
        curve=outcome.in_order if step.alone else curve(predict, outcome, limits.batch_multiple),
        price_per_hour_usd=price_per_hour(request, gpu),
        source=recommended.source,
        span=ratio_span(*times, _gained(compared, recommended)),
        bound=choice.bound,
        safe_batch_size=limits.safe_batch_size,
        host_decides=any(map(host_decides, times)),
        foregone=choice.foregone,
        caveats=[
            *caveats_of(step, recommended, outcome, limits.safe_batch_size, waits),
            *host_caveats(compared.batch_size, times[0], gpu),
            *waiting_caveats(compared.batch_size, times[0]),
            *smaller_multiple_caveat(request, limits.batch_multiple),
        ],
        timeline=timeline(step),
        largest_tensors=largest_tensors(step),
    )


def _gained(current: Trial, recommended: Trial) -> float:
    """The predicted speed of one batch over another; 1 where one of them does not fit."""
    before, after = current.samples_per_second, recommended.samples_per_second
    return after / before if before and after else 1.0


def reporting_probe(
    run: Probe, emit: Emit, known: Mapping[int, Trial] = MappingProxyType({})
) -> Probe:
    """A probe that makes each trial once and emits it.

    Args:
        run: Makes a trial.
        emit: Receives the trial and a log line about it.
        known: Trials by batch size that were made and emitted before.
    """

    @cache
    def probe(batch_size: int) -> Trial:
        if batch_size in known:
            return known[batch_size]
        trial = run(batch_size)
        emit(trial)
        emit(Log(format_trial(trial)))
        return trial

    return probe


def catalogue_gpu(request: Request) -> Gpu:
    """The catalogue GPU of a request, with less memory if the request sets a limit.

    Raises:
        InvalidInput: If it names none of the catalogue.
        DoesNotFit: If the memory limit leaves nothing beside the CUDA context.
    """
    if request.gpu not in GPUS:
        wanted = f"choose a catalogue GPU, not {request.gpu}; {HOW_TO_LIST}"
        raise InvalidInput({"gpu": wanted})
    gpu = known_gpus(request.launch_microseconds)[request.gpu]
    limit = request.memory_limit_bytes
    if limit is None or limit >= gpu.total_bytes:
        return gpu
    if limit <= gpu.context_bytes:
        raise DoesNotFit(
            f"The memory limit of {gib(limit)} leaves no room for tensors: the CUDA context alone "
            f"takes {gib(gpu.context_bytes)}. Set a larger limit."
        )
    name = f"{gpu.display_name} limited to {gib(limit)}"
    return replace(gpu, display_name=name, total_bytes=limit)


def gpu_facts(gpu: Gpu) -> GpuFacts:
    return GpuFacts(gpu.display_name, gpu.total_bytes, gpu.usable_bytes)


def price_per_hour(request: Request, gpu: Gpu) -> float:
    """The price of one GPU-hour in USD: the request's own, else the catalogue's; 0 if unknown."""
    own = request.assumptions.price_per_hour_usd
    return (gpu.price_per_hour_usd or 0.0) if own is None else own


def format_trial(trial: Trial) -> str:
    """One line about a trial for the log."""
    parts = [f"batch {trial.batch_size:,} {'fits' if trial.fits else 'does not fit'}"]
    if trial.peak_allocated_bytes is not None:
        parts.append(f"peak allocated {gib(trial.peak_allocated_bytes)}")
    if trial.peak_reserved_bytes is not None:
        parts.append(f"peak reserved {gib(trial.peak_reserved_bytes)}")
    if trial.step_seconds is not None and trial.fits:
        parts.append(f"{ms(trial.step_seconds)} a step, {rate(trial.samples_per_second or 0)}")
    return f"{', '.join(parts)} ({trial.source})"


def curve(predict: Probe, outcome: SearchOutcome, multiple: int) -> list[Trial]:
    """Trials from a small batch to a little beyond the limit, for a chart.

    They are spaced evenly, at friendly sizes where these are multiples, and at each power of two.
    """
    end = min(math.ceil(outcome.next_batch_size * 1.1), MAX_BATCH_SIZE)
    multiples = range(multiple, end + 1, multiple)
    sizes = [size for size in multiples if is_friendly(size)] or multiples
    even = [end * point / _CURVE_POINTS for point in range(1, _CURVE_POINTS + 1)]
    chosen = {sizes[max(0, bisect_right(sizes, point) - 1)] for point in even}
    chosen |= {size for size in sizes if size.bit_count() == 1}
    return [predict(size) for size in sorted(chosen)]
