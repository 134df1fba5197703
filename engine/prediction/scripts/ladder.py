"""The ladder of a script: its moves are made in it while it is traced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ...answer.conclusion import Findings
from ...answer.ladder import Learning, Move
from ...answer.learning_rate import advice_for_classes
from ...interface.request import Request
from ...interface.result import AnalysisResult
from ...script.batch_sizes import trace_request
from ...script.identity import hash_of_traces
from ...script.program import Program
from ...script.request import ScriptRequest
from ...traces.source import TraceSource
from ...tracing.lowering import behaviour_of
from ..plans.combinations import Combination
from ..plans.ladder import Climb
from ..timing.correction import Correction
from ..timing.step_time import predict_step_seconds
from .conclusion import conclude_script
from .moves import made_in_scripts, moves_in
from .phases import ScriptPhases
from .prediction import ScriptPrediction
from .step_time import micro_batches_of_script, precision_of


@dataclass(frozen=True, kw_only=True)
class ScriptClimb(Climb[ScriptRequest, ScriptPrediction]):
    """The ladder of one script on one GPU.

    Attributes:
        traces: The traces of the unchanged script there.
        later: The phases besides its step, which judge a trial too.
        correction: Correction of the unchanged script's step times, which applies to every rung.
    """

    traces: TraceSource
    later: ScriptPhases
    correction: Correction

    @cached_property
    def program_hash(self) -> str:
        """The hash of the unchanged script, which all rungs are about."""
        return hash_of_traces(self.traces, self.request.known_batch_size)

    def moves(self) -> list[Move]:
        if not isinstance(self.request.script, Program):  # no move can be made in others
            return []
        return moves_in(self.traces.at(self.request.known_batch_size), self.gpu)

    def shards(self) -> list[Move]:
        return []

    def may_fit(self, moves: Combination) -> bool:
        return True

    def global_batch(self, prediction: ScriptPrediction, batch_size: int) -> int:
        step = prediction.traces.at(batch_size)
        count = micro_batches_of_script(prediction.request, step)
        return batch_size * count * (step.world_size // step.divided_by)

    def prediction(self, request: ScriptRequest) -> ScriptPrediction:
        traces = self.traces
        if request.script != self.request.script:
            traces = trace_request(request, behaviour_of(self.gpu), lambda _: None)
        return ScriptPrediction(request, self.gpu, traces, self.later, self.correction)

    def _with(self, moves: Combination) -> ScriptRequest:
        script = self.request.script
        if not isinstance(script, Program) or not moves:
            return self.request
        return replace(self.request, script=replace(script, moves=made_in_scripts(moves)))

    def _concluded(self, prediction: ScriptPrediction, found: Findings) -> AnalysisResult:
        if found.moves:
            found = replace(found, program_hash=self.program_hash, kept_batch=None)
        return conclude_script(prediction.request, found)

    def _couples(self, prediction: ScriptPrediction, batch_size: int) -> Learning:
        operations = prediction.traces.at(batch_size).operations
        if any("batch_norm" in one.name for one in operations):
            return Learning.NUMERICS  # each micro-batch is normalised by itself
        return Learning.NONE

    def _learning_rate(self, before: int, after: int, learning: Learning) -> str:
        step = self.traces.at(self.request.known_batch_size)
        return advice_for_classes(step.optimizers, before, after)

    def _is_adapted(self, request: Request) -> bool:
        return False

    def _optimizer_share(self, prediction: ScriptPrediction, batch_size: int) -> float:
        step = prediction.traces.at(batch_size)
        steps = [one for one in step.operations if one.phase == "optimizer"]
        taken = predict_step_seconds(steps, self.gpu, precision_of(step))
        return taken / prediction.step_time(batch_size).seconds
