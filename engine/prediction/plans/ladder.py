"""Climbs the ladder of one subject on one GPU: predicts combinations of moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, Self, TypeVar

from torch._subclasses.fake_tensor import DataDependentOutputException

from ...answer.conclusion import Findings
from ...answer.economics import MOVES_NOISE, usd_per_million_samples
from ...answer.ladder import (
    ACCUMULATION,
    Learning,
    Move,
    Rung,
    about_training,
    effort_of,
    learning_of,
)
from ...answer.recommendation import Bound
from ...core.errors import DoesNotFit, EngineError, InvalidInput
from ...core.sizes import gib_of
from ...events import Event
from ...gpus import Gpu
from ...interface.request import Request
from ...interface.result import AnalysisResult
from ...interface.trial import Trial
from ..limits import starting_batch_size
from ..predicted_findings import predict_findings
from ..prediction import Prediction
from ..requested_gpu import price_per_hour
from ..timing.step_time import host_decides, ratio_span
from .combinations import Combination, Reached
from .moves import LESS_ACCUMULATION

_NOT_PREDICTED = "such a step depends on the values of tensors, which a prediction does not have"

_CURVE_FROM = 2
"""A batch of 1 has a trace of its own, a sixth of the time that a ladder takes for one point."""


_Request = TypeVar("_Request", bound=Request)
_Prediction = TypeVar("_Prediction", bound=Prediction)


def quiet(_event: Event) -> None:
    """Drop an event: attempts on the way are not shown."""


@dataclass(frozen=True)
class Climb(ABC, Generic[_Request, _Prediction]):
    """The ladder of one subject on one GPU: of a model that MemoryMark builds, or of a script.

    Attributes:
        request: The unchanged subject. Without a current batch, the one to start with takes its
            place.
        gpu: Its GPU, with less memory if there is a limit.
        software: The versions that are traced with.
        starts: Whether there is no current batch yet.
    """

    request: _Request
    gpu: Gpu
    software: dict[str, str]
    starts: bool = False

    @abstractmethod
    def moves(self) -> list[Move]:
        """Every single move to try, other than another batch and another GPU."""

    @abstractmethod
    def shards(self) -> list[Move]:
        """The moves to more GPUs."""

    @abstractmethod
    def may_fit(self, moves: Combination) -> bool:
        """Whether weights, gradients and optimizer state alone fit with these moves."""

    @abstractmethod
    def global_batch(self, prediction: _Prediction, batch_size: int) -> int:
        """Samples of one optimizer step, over its micro-batches and GPUs."""

    @abstractmethod
    def _with(self, moves: Combination) -> _Request:
        """The request with these moves."""

    @abstractmethod
    def prediction(self, request: _Request) -> _Prediction:
        """Predictions for the subject of a request, one with moves too."""

    @abstractmethod
    def _concluded(self, prediction: _Prediction, found: Findings) -> AnalysisResult:
        """The answer that findings make."""

    @abstractmethod
    def _couples(self, prediction: _Prediction, batch_size: int) -> Learning:
        """Effect of a micro-batch on learning although an optimizer step sees as many samples."""

    @abstractmethod
    def _learning_rate(self, before: int, after: int, learning: Learning) -> str:
        """Advice on the learning rate, in one line.

        Args:
            before: Samples of one optimizer step today.
            after: Samples of one with the moves.
            learning: The most that one of the moves changes about learning.
        """

    @abstractmethod
    def _is_adapted(self, request: _Request) -> bool:
        """Whether only adapters are trained."""

    @abstractmethod
    def _optimizer_share(self, prediction: _Prediction, batch_size: int) -> float:
        """The share of a step's time that its optimizer takes."""

    def starting(self) -> Self:
        """The same for a request without a current batch: from the one to start with."""
        size = starting_batch_size(self.unchanged)
        return replace(self, request=replace(self.request, current_batch_size=size), starts=True)

    @cached_property
    def unchanged(self) -> _Prediction:
        """Predictions without a move."""
        return self.prediction(self.request)

    @cached_property
    def today(self) -> Trial:
        """The trial of the current batch, without a move."""
        return self.unchanged.predict(self.request.known_batch_size, careful=True)

    def reach(self, moves: Combination) -> Reached:
        """Predict a combination of moves. One that is not possible, or does not fit, says why.

        Raises:
            EngineError: If the subject cannot even be predicted without a move.
        """
        rung = self.unreached(moves)
        failure: EngineError
        try:
            return self._reached(moves, rung, self._with(moves))
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

    def batch_move(
        self, after: _Prediction, batch_size: int, couples: Learning = Learning.NONE
    ) -> list[Move]:
        """The move to another batch, if it is another.

        Args:
            after: _Predictions with the other moves.
            batch_size: The batch recommended with them.
            couples: Effect of the batch on learning even if it keeps the global batch.
        """
        if batch_size == self.request.current_batch_size:
            return []
        kept = self.global_batch(after, batch_size) == self._global_batch_today
        learning = (
            couples if kept else max(couples, Learning.GLOBAL_BATCH, key=list(Learning).index)
        )
        return [Move(f"batch {batch_size:,}", {}, learning)]

    def about_learning(self, rung: Rung, moves: Sequence[Move], global_batch_size: int) -> Rung:
        """The rung of these moves, with what they do to the training.

        Args:
            rung: A rung.
            moves: Its moves, the batch among them.
            global_batch_size: Samples of one optimizer step with them.
        """
        today, learning = self._global_batch_today, learning_of(moves)
        rung = replace(
            rung,
            moves=[move.name for move in moves],
            learning=learning,
            effort=effort_of(moves),
            global_batch_before=today,
            global_batch_size=global_batch_size,
            keeps_global_batch=global_batch_size == today,
            learning_rate=self._learning_rate(today, global_batch_size, learning) if moves else "",
        )
        return replace(rung, training=about_training(rung))

    @property
    def _global_batch_today(self) -> int:
        return self.global_batch(self.unchanged, self.request.known_batch_size)

    def _reached(self, moves: Combination, rung: Rung, request: _Request) -> Reached:
        if not moves and self.starts:
            request = replace(request, current_batch_size=None)
        prediction = self.prediction(request) if moves or self.starts else self.unchanged
        search = partial(
            predict_findings, prediction, quiet, refusal=self._refusal, curve_from=_CURVE_FROM
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
            is_adapted=self._is_adapted(request),
            memory_bound=found.bound is Bound.MEMORY or found.safe_batch_size == 0,
            loses_batch=loses_batch and not self.starts,
            optimizer_share=self._optimizer_share(prediction, found.recommended.batch_size),
            kept=kept,
        )

    def _refusal(self, smallest: Trial) -> DoesNotFit:
        needed, available = smallest.device_used_bytes or 0, self.gpu.total_bytes
        return DoesNotFit(
            f"even batch {smallest.batch_size:,} needs {gib_of(needed, available, 1)}"
        )

    def _at_its_batch(
        self, moves: Combination, rung: Rung, prediction: _Prediction, found: Findings
    ) -> Rung:
        request = prediction.request
        batch_size = found.recommended.batch_size
        made = _named(moves, self.request, request, batch_size)
        if moves:
            names = [move.name for move in made]
            now = self.unchanged.step_time(self.request.known_batch_size)
            then = prediction.step_time(batch_size)
            found = replace(
                found,
                current=self.today,
                moves=names,
                span=ratio_span(now, then, 1.0, MOVES_NOISE),
                host_decides=host_decides(now) or host_decides(then),
            )
        result = replace(self._concluded(prediction, found), software=self.software)
        if self.starts:  # nobody has trained at the batch that the moves are compared with
            result = replace(
                result, current_batch_size=None, current_headroom_bytes=None, savings=None
            )
        made += self.batch_move(prediction, batch_size, self._couples(prediction, batch_size))
        return replace(
            self.about_learning(rung, made, self.global_batch(prediction, batch_size)),
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

    def _usd_per_million(self, request: Request, trial: Trial) -> float | None:
        price = request.world_size * price_per_hour(self.request, self.gpu)
        speed = trial.samples_per_second
        return usd_per_million_samples(price, speed) if price and speed else None


AnyClimb = Climb[Any, Any]


def _named(moves: Combination, before: Request, after: Request, batch_size: int) -> list[Move]:
    """The moves, with names that depend on the batch filled in."""
    count = after.accumulation_at(batch_size)
    less = before.gradient_accumulation / count
    name = f"{less:.3g}\N{MULTIPLICATION SIGN} {LESS_ACCUMULATION}"
    if less <= 1:
        name = f"{ACCUMULATION} over {count:,} micro-batches"
    ways = (LESS_ACCUMULATION, ACCUMULATION)
    return [replace(move, name=name) if move.name in ways else move for move in moves]
