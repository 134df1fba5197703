"""Climbs the ladder: predicts combinations of moves on one GPU, a few side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial

from torch._subclasses.fake_tensor import DataDependentOutputException

from ..allocator.options import AllocatorOptions
from ..answer.conclusion import Findings, conclude
from ..answer.economics import (
    GPUS_NOISE,
    MOVES_NOISE,
    Speedup,
    speedup,
    usd_per_million_samples,
    within,
)
from ..answer.ladder import (
    ACCUMULATION,
    Effort,
    Learning,
    Move,
    Rung,
    about_training,
    effort_of,
    learning_of,
    switch_to,
)
from ..answer.learning_rate import learning_rate_advice
from ..answer.plan import GpuOption
from ..answer.recommendation import Bound
from ..answer.worth import is_worth_it
from ..core.choices import ZERO, Mode, Precision
from ..core.errors import DoesNotFit, EngineError, InvalidInput
from ..core.numbers import times, usd
from ..core.sizes import gib_of
from ..events import Event
from ..gpus import Gpu, short_name
from ..interface.request import AnalysisRequest, Request
from ..interface.trial import Source, Trial
from ..step.building import blaming_the_config
from ..traces.tracer import trace
from ..traces.workloads import KeptTraces
from ..tracing.lowering import behaviour_of
from ..tracing.trace import Category
from .caveats import COMPARED
from .combinations import Combination, Reached
from .correction import Correction
from .gpu_comparison import best_known
from .limits import starting_batch_size
from .moves import LESS_ACCUMULATION, least_bytes
from .predicted_analysis import ModelPrediction
from .predicted_findings import predict_findings
from .probe import predict_step, predict_trial
from .requested_gpu import price_per_hour
from .step_time import host_decides, predict_step_seconds, ratio_span

_NOT_PREDICTED = "such a step depends on the values of tensors, which a prediction does not have"

_CURVE_FROM = 2
"""A batch of 1 has a trace of its own, a sixth of the time that a ladder takes for one point."""


def _quiet(_event: Event) -> None:
    """Drop an event: attempts on the way are not shown."""


@dataclass(frozen=True)
class Climb:
    """The ladder of one workload on one GPU.

    Attributes:
        request: The unchanged workload. Without a current batch, the one to start with takes its
            place.
        gpu: Its GPU, with less memory if there is a limit.
        traced: Traces a workload.
        correction: Correction of the unchanged workload's step times. It applies to every rung, or
            what was measured of the workload alone would look like a gain.
        software: The versions that are traced with.
        starts: Whether there is no current batch yet.
    """

    request: AnalysisRequest
    gpu: Gpu
    traced: KeptTraces
    correction: Correction
    software: dict[str, str]
    starts: bool = False

    def starting(self) -> Climb:
        """The same for a request without a current batch: from the one to start with."""
        size = starting_batch_size(self._unchanged)
        return replace(self, request=replace(self.request, current_batch_size=size), starts=True)

    @cached_property
    def today(self) -> Trial:
        """The trial of the current batch, without a move."""
        return self._unchanged.predict(self.request.known_batch_size, careful=True)

    @cached_property
    def parameters(self) -> float:
        """Number of parameters of the unchanged model."""
        trace = self._unchanged.traces.at(2)
        before = trace.events[: trace.phases[1][0]]  # later ones are gathered, and freed
        held = sum(
            trace.sizes[tensor]
            for _, tensor in before
            if trace.categories[tensor] is Category.PARAMETERS
        )
        workload = self.request.workload
        is_half = workload.precision is Precision.BF16_TRUE or workload.parallelism in ZERO
        return held / (2 if is_half else 4) * workload.shard_count

    def may_fit(self, moves: Combination) -> bool:
        """Whether weights, gradients and optimizer state alone fit with these moves."""
        try:
            workload = self._with(moves).workload
        except InvalidInput:
            return True  # to say why it cannot be done
        return least_bytes(workload, self.parameters) <= self.gpu.usable_bytes

    def reach(self, moves: Combination) -> Reached:
        """Predict a combination of moves. One that is not possible, or does not fit, says why.

        Raises:
            EngineError: If the workload cannot even be predicted without a move.
        """
        rung = self.unreached(moves)
        failure: EngineError
        try:
            request = self._with(moves)
            with blaming_the_config(request.workload):
                return self._reached(moves, rung, request)
        except DoesNotFit as error:
            return Reached(replace(rung, why_not=str(error)))
        except InvalidInput as error:
            failure, why_not = error, "; ".join(error.fields.values())
        except EngineError as error:
            failure, why_not = error, str(error)
        except DataDependentOutputException:
            failure, why_not = EngineError(_NOT_PREDICTED), _NOT_PREDICTED
        if not moves:
            raise failure
        return Reached(replace(rung, why_not=why_not), applies=False)

    def unreached(self, moves: Combination, why_not: str = "") -> Rung:
        """The rung of a combination before anything is predicted of it."""
        return Rung(
            [move.name for move in moves],
            {name: value for move in moves for name, value in move.fields.items()},
            learning_of(moves),
            effort_of(moves),
            why_not=why_not,
        )

    def _reached(self, moves: Combination, rung: Rung, request: AnalysisRequest) -> Reached:
        if not moves and self.starts:
            request = replace(request, current_batch_size=None)
        prediction = self.prediction(request) if moves or self.starts else self._unchanged
        search = partial(
            predict_findings, prediction, _quiet, refusal=self._refusal, curve_from=_CURVE_FROM
        )
        found = search()
        loses_batch = (found.safe_batch_size or 0) < self.request.known_batch_size
        reached = self._at_its_batch(moves, rung, prediction, found)
        kept = None
        if moves and not loses_batch and reached.keeps_global_batch is False:
            there = self._at_its_batch(moves, rung, prediction, search(stays=True))
            kept = there if there.keeps_global_batch else None
        return Reached(
            reached,
            is_adapted=request.workload.lora_rank is not None,
            memory_bound=found.bound is Bound.MEMORY or found.safe_batch_size == 0,
            loses_batch=loses_batch and not self.starts,
            optimizer_share=self._optimizer_share(prediction, found),
            kept=kept,
        )

    def _with(self, moves: Combination) -> AnalysisRequest:
        """The request with these moves."""
        changed = {name: value for move in moves for name, value in move.fields.items()}
        own = {name: value for name, value in changed.items() if name in _OF_REQUEST}
        trained = {name: value for name, value in changed.items() if name not in _OF_REQUEST}
        return replace(self.request, workload=replace(self.request.workload, **trained), **own)

    @cached_property
    def _unchanged(self) -> ModelPrediction:
        return self.prediction(self.request)

    def prediction(self, request: AnalysisRequest) -> ModelPrediction:
        behaviour = behaviour_of(self.gpu)
        traces = self.traced.of(request, behaviour, _quiet)
        return ModelPrediction(request, self.gpu, traces, self.correction)

    def trial_of(self, request: AnalysisRequest) -> Trial:
        """The trial of the current batch of another workload, by one trace of that batch alone."""
        batch_size = request.known_batch_size
        workload = request.workload_at(batch_size)
        step = trace(workload, batch_size, behaviour_of(self.gpu))
        return predict_trial(workload, self.gpu, step, AllocatorOptions.parse(request.allocator))

    def _refusal(self, smallest: Trial) -> DoesNotFit:
        needed, available = smallest.device_used_bytes or 0, self.gpu.total_bytes
        return DoesNotFit(
            f"even batch {smallest.batch_size:,} needs {gib_of(needed, available, 1)}"
        )

    def _at_its_batch(
        self, moves: Combination, rung: Rung, prediction: ModelPrediction, found: Findings
    ) -> Rung:
        request = prediction.request
        batch_size = found.recommended.batch_size
        made = _named(moves, self.request, request, batch_size)
        if moves:
            names = [move.name for move in made]
            now = self._unchanged.step_time(self.request.known_batch_size)
            then = prediction.step_time(batch_size)
            found = replace(
                found,
                current=self.today,
                moves=names,
                span=ratio_span(now, then, 1.0, MOVES_NOISE),
                host_decides=host_decides(now) or host_decides(then),
            )
        result = replace(conclude(request, found), software=self.software)
        if self.starts:  # nobody has trained at the batch that the moves are compared with
            result = replace(
                result, current_batch_size=None, current_headroom_bytes=None, savings=None
            )
        made += _batch_move(self.request, request, batch_size, _couples(prediction, batch_size))
        return replace(
            _about_learning(rung, made, self.request, _global_batch(request, batch_size)),
            decision=result.decision,
            fits=True,
            batch_size=batch_size,
            samples_per_second=found.recommended.samples_per_second,
            speedup=result.speedup,
            speedup_low=result.speedup_low,
            speedup_high=result.speedup_high,
            usd_per_run=self._usd_per_run(result.speedup),
            usd_per_million_samples=self._usd_per_million(request, found.recommended),
            result=result,
        )

    def _usd_per_run(self, speedup: float | None) -> float | None:
        if speedup is None:
            return None
        hours = self.request.assumptions.hours_per_run / speedup
        return hours * price_per_hour(self.request, self.gpu)

    def _usd_per_million(self, request: AnalysisRequest, trial: Trial) -> float | None:
        price = request.world_size * price_per_hour(self.request, self.gpu)
        speed = trial.samples_per_second
        return usd_per_million_samples(price, speed) if price and speed else None

    def _optimizer_share(self, prediction: ModelPrediction, found: Findings) -> float:
        """The share of a step at the recommended batch that its optimizer takes."""
        batch_size = found.recommended.batch_size
        trace, workload = prediction.traces.at(batch_size), prediction.request.workload
        steps = [one for one in trace.operations if one.phase == "optimizer"]
        whole = predict_step(prediction.request.workload_at(batch_size), self.gpu, trace).seconds
        return predict_step_seconds(steps, self.gpu, workload.precision) / whole


_OF_REQUEST = frozenset({field.name for field in fields(Request)})


def _about_learning(
    rung: Rung, moves: Sequence[Move], before: AnalysisRequest, global_batch_size: int
) -> Rung:
    """The rung of these moves, with what they do to the training.

    Args:
        rung: A rung.
        moves: Its moves, the batch among them.
        before: The unchanged workload.
        global_batch_size: Samples of one optimizer step with them.
    """
    today, learning = _global_batch(before, before.known_batch_size), learning_of(moves)
    rung = replace(
        rung,
        moves=[move.name for move in moves],
        learning=learning,
        effort=effort_of(moves),
        global_batch_before=today,
        global_batch_size=global_batch_size,
        keeps_global_batch=global_batch_size == today,
        learning_rate=learning_rate_advice(
            before.workload.optimizer,
            today,
            global_batch_size,
            is_retrained=learning in (Learning.OPTIMIZER, Learning.TRAINED),
        )
        if moves
        else "",
    )
    return replace(rung, training=about_training(rung))


def _named(
    moves: Combination, before: AnalysisRequest, after: AnalysisRequest, batch_size: int
) -> list[Move]:
    """The moves, with names that depend on the batch filled in."""
    count = after.accumulation_at(batch_size)
    less = before.gradient_accumulation / count
    name = f"{less:.3g}\N{MULTIPLICATION SIGN} {LESS_ACCUMULATION}"
    if less <= 1:
        name = f"{ACCUMULATION} over {count:,} micro-batches"
    ways = (LESS_ACCUMULATION, ACCUMULATION)
    return [replace(move, name=name) if move.name in ways else move for move in moves]


def _couples(prediction: ModelPrediction, batch_size: int) -> Learning:
    """Effect of another micro-batch on learning although an optimizer step sees as many samples."""
    workload = prediction.request.workload
    if workload.task in COMPARED:
        return Learning.GLOBAL_BATCH
    operations = prediction.traces.at(batch_size).operations
    if workload.mode is Mode.TRAIN and any("batch_norm" in one.name for one in operations):
        return Learning.NUMERICS  # each micro-batch is normalised by itself
    return Learning.NONE


def _batch_move(
    before: AnalysisRequest,
    after: AnalysisRequest,
    batch_size: int,
    couples: Learning = Learning.NONE,
) -> list[Move]:
    """The move to another batch, if it is another.

    Args:
        before: The unchanged workload.
        after: The workload with the other moves.
        batch_size: The batch recommended with them.
        couples: Effect of the batch on learning even if it keeps the global batch.
    """
    if batch_size == before.current_batch_size:
        return []
    today = _global_batch(before, before.known_batch_size)
    kept = _global_batch(after, batch_size) == today
    learning = couples if kept else max(couples, Learning.GLOBAL_BATCH, key=list(Learning).index)
    return [Move(f"batch {batch_size:,}", {}, learning)]


def _global_batch(request: AnalysisRequest, batch_size: int) -> int:
    """Samples of one optimizer step, over its micro-batches and GPUs."""
    return batch_size * request.accumulation_at(batch_size) * request.data_parallel


# Other GPUs, as rungs


def other_gpus(
    request: AnalysisRequest, options: Sequence[GpuOption], today: float | None
) -> list[Rung]:
    """The GPU with the cheapest million samples, and the fastest, of those that surely fit.

    Args:
        request: The unchanged workload.
        options: Every GPU.
        today: Samples per second at the current batch on the request's own GPU; ``None`` where it
            does not fit.
    """
    fitting = [option for option in options if option.fits]
    own = next((option for option in fitting if option.gpu == request.gpu), None)
    compared = best_known(options)
    priced = [option for option in compared if option.usd_per_million_samples is not None]
    best = [
        min(priced, key=lambda option: option.usd_per_million_samples or 0.0, default=None),
        max(compared, key=lambda option: option.samples_per_second or 0.0, default=None),
    ]
    chosen = {option.gpu: option for option in best if option is not None and option != own}
    hours = request.assumptions.hours_per_run
    price = None if own is None else own.price_per_hour_usd
    usd_today = None if price is None else hours * price
    return [_on_gpu(request, option, today, usd_today) for option in chosen.values()]


def _on_gpu(
    request: AnalysisRequest, option: GpuOption, today: float | None, usd_today: float | None
) -> Rung:
    """The rung of another GPU; ``usd_today`` is what a run costs today."""
    batch_size, speed = option.recommended_batch_size or 0, option.samples_per_second or 0.0
    move = Move(short_name(option.gpu_name), {"gpu": option.gpu}, effort=Effort.MACHINE)
    moves = [move, *_batch_move(request, request, batch_size)]
    names = [one.name for one in moves]
    rung = Rung(
        names,
        move.fields,
        fits=True,
        batch_size=batch_size,
        gpu=option.gpu,
        samples_per_second=speed,
        usd_per_run=option.usd_per_run,
        usd_per_million_samples=option.usd_per_million_samples,
    )
    rung = _about_learning(rung, moves, request, _global_batch(request, batch_size))
    if today is None:
        return replace(rung, decision=f"Switch to {names[0]}: batch {batch_size:,} fits.")
    gained = speedup(today, speed, within(GPUS_NOISE))
    how = f"{times(gained.ratio)} {'faster' if gained.ratio >= 1 else 'the speed'}"
    if option.usd_per_run is not None:
        how += f", {usd(option.usd_per_run)} a run"
    decision = switch_to(names, how)
    if not (_is_worth_it(gained) or _is_cheaper(usd_today, option.usd_per_run)):
        decision = f"Keep today's GPU: {names[0]} is not surely faster or cheaper."
    return replace(
        rung,
        decision=decision,
        speedup=gained.ratio,
        speedup_low=gained.low,
        speedup_high=gained.high,
    )


def _is_worth_it(gained: Speedup) -> bool:
    return is_worth_it(gained, Source.PREDICTED)


def _is_cheaper(usd_today: float | None, usd_per_run: float | None) -> bool:
    """Whether a run costs enough less to be worth a change; prices are taken as they are."""
    if not (usd_today and usd_per_run):
        return False
    return _is_worth_it(speedup(usd_per_run, usd_today, within(GPUS_NOISE)))
