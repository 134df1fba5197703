"""The ladder of a model that MemoryMark builds: its moves change fields of the workload."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

from ...allocator.options import AllocatorOptions
from ...answer.conclusion import Findings, conclude
from ...answer.ladder import Learning, Move, Rung
from ...answer.learning_rate import learning_rate_advice
from ...core.choices import ZERO, Mode, Precision
from ...core.errors import InvalidInput
from ...interface.request import AnalysisRequest, Request
from ...interface.result import AnalysisResult
from ...interface.trial import Trial
from ...step.building import blaming_the_config
from ...traces.tracer import trace
from ...traces.workloads import KeptTraces
from ...tracing.lowering import behaviour_of
from ...tracing.trace import Category
from ..caveats import COMPARED
from ..predicted_analysis import ModelPrediction
from ..probe import predict_step, predict_trial
from ..timing.correction import Correction
from ..timing.step_time import predict_step_seconds
from .combinations import Combination, Reached
from .ladder import Climb, quiet
from .moves import least_bytes, moves_for, sharded

_OF_REQUEST = frozenset({field.name for field in fields(Request)})


@dataclass(frozen=True, kw_only=True)
class ModelClimb(Climb[AnalysisRequest, ModelPrediction]):
    """The ladder of one workload on one GPU.

    Attributes:
        traced: Traces a workload.
        correction: Correction of the unchanged workload's step times. It applies to every rung, or
            what was measured of the workload alone would look like a gain.
    """

    traced: KeptTraces
    correction: Correction

    @cached_property
    def parameters(self) -> float:
        """Number of parameters of the unchanged model."""
        step = self.unchanged.traces.at(2)
        before = step.events[: step.phases[1][0]]  # later ones are gathered, and freed
        held = sum(
            step.sizes[tensor]
            for _, tensor in before
            if step.categories[tensor] is Category.PARAMETERS
        )
        workload = self.request.workload
        is_half = workload.precision is Precision.BF16_TRUE or workload.parallelism in ZERO
        return held / (2 if is_half else 4) * workload.shard_count

    def moves(self) -> list[Move]:
        return moves_for(self.request, self.gpu)

    def shards(self) -> list[Move]:
        return sharded(self.request)

    def may_fit(self, moves: Combination) -> bool:
        try:
            workload = self._with(moves).workload
        except InvalidInput:
            return True  # to say why it cannot be done
        return least_bytes(workload, self.parameters) <= self.gpu.usable_bytes

    def global_batch(self, prediction: ModelPrediction, batch_size: int) -> int:
        request = prediction.request
        return batch_size * request.accumulation_at(batch_size) * request.data_parallel

    def prediction(self, request: AnalysisRequest) -> ModelPrediction:
        traces = self.traced.of(request, behaviour_of(self.gpu), quiet)
        return ModelPrediction(request, self.gpu, traces, self.correction)

    def trial_of(self, request: AnalysisRequest) -> Trial:
        """The trial of the current batch of another workload, by one trace of that batch alone."""
        batch_size = request.known_batch_size
        workload = request.workload_at(batch_size)
        step = trace(workload, batch_size, behaviour_of(self.gpu))
        return predict_trial(workload, self.gpu, step, AllocatorOptions.parse(request.allocator))

    def _reached(self, moves: Combination, rung: Rung, request: AnalysisRequest) -> Reached:
        with blaming_the_config(request.workload):
            return super()._reached(moves, rung, request)

    def _with(self, moves: Combination) -> AnalysisRequest:
        changed = {name: value for move in moves for name, value in move.fields.items()}
        own = {name: value for name, value in changed.items() if name in _OF_REQUEST}
        trained = {name: value for name, value in changed.items() if name not in _OF_REQUEST}
        return replace(self.request, workload=replace(self.request.workload, **trained), **own)

    def _concluded(self, prediction: ModelPrediction, found: Findings) -> AnalysisResult:
        return conclude(prediction.request, found)

    def _couples(self, prediction: ModelPrediction, batch_size: int) -> Learning:
        workload = prediction.request.workload
        if workload.task in COMPARED:
            return Learning.GLOBAL_BATCH
        operations = prediction.traces.at(batch_size).operations
        if workload.mode is Mode.TRAIN and any("batch_norm" in one.name for one in operations):
            return Learning.NUMERICS  # each micro-batch is normalised by itself
        return Learning.NONE

    def _learning_rate(self, before: int, after: int, learning: Learning) -> str:
        return learning_rate_advice(
            self.request.workload.optimizer,
            before,
            after,
            is_retrained=learning in (Learning.OPTIMIZER, Learning.TRAINED),
        )

    def _is_adapted(self, request: AnalysisRequest) -> bool:
        return request.workload.lora_rank is not None

    def _optimizer_share(self, prediction: ModelPrediction, batch_size: int) -> float:
        step, request = prediction.traces.at(batch_size), prediction.request
        steps = [one for one in step.operations if one.phase == "optimizer"]
        whole = predict_step(request.workload_at(batch_size), self.gpu, step).seconds
        return predict_step_seconds(steps, self.gpu, request.workload.precision) / whole
