"""The steps that a trial runs, of a workload or a script, and how they are timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from ..interface.trial import Trial
from ..interface.workload import Workload
from ..parallel.group import place, slowest
from ..prediction.memory.timeline import largest_tensors, timeline
from ..script.factory import Factory
from ..script.process.steps import ScriptSteps
from ..script.program import Program
from ..step.batches import make_batch
from ..step.evaluating import Evaluation, evaluate, evaluation_of
from ..step.rollouts import METRICS, SCORING, Completions, completions_of, roll_out
from ..step.training import TrainingState, build_model, prepare, step_of
from ..tracing.recorded import Recorded
from ..tracing.trace import GROWTH, PROMPT, TOKEN, Trace
from .protocol import RecordedStep, TrialOrder
from .weights import DrawingLater, draw

WARM_UP_STEPS = 2
"""Not timed: the first builds the optimizer state, the second is the first that has it."""
TIMED_STEPS = 5
ENOUGH_SECONDS = 10.0
"""A slow device stops early, after at least one timed step, so that three have run in all."""
MODEL = "model"
"""The phase before the first step: moving the model to the device."""


@dataclass(frozen=True)
class StepTimes:
    """Times of the steps of one trial, in seconds.

    Attributes:
        median: Median of all of them.
        low, high: The quartiles; ``None`` if only one step was timed.
    """

    median: float
    low: float | None
    high: float | None


def time_steps(
    timed_step: Callable[[], float], agree: Callable[[float], float] = lambda seconds: seconds
) -> StepTimes:
    """Time up to :data:`TIMED_STEPS` steps.

    Args:
        timed_step: Runs one step and returns its seconds.
        agree: Turns them into the seconds that all GPUs sharing the step agree on.
    """
    seconds: list[float] = []
    while not enough(seconds):
        seconds.append(agree(timed_step()))
    return times_of(seconds)


def enough(seconds: Sequence[float]) -> bool:
    """Whether these step times, in seconds, are enough."""
    return len(seconds) >= TIMED_STEPS or sum(seconds) >= ENOUGH_SECONDS


def times_of(seconds: Sequence[float]) -> StepTimes:
    """The times of these steps, at least one."""
    if len(seconds) == 1:
        return StepTimes(seconds[0], None, None)
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return StepTimes(median, low, high)


def with_times(trial: Trial, times: StepTimes, samples_per_step: int) -> Trial:
    return replace(
        trial,
        step_seconds=times.median,
        samples_per_second=samples_per_step / times.median,
        step_seconds_low=times.low,
        step_seconds_high=times.high,
    )


def recorded_step(trace: Trace) -> RecordedStep:
    return RecordedStep(timeline(trace), largest_tensors(trace), trace.peak_by_category()[1])


def out_of_memory_in(phase: str) -> str:
    places = {
        MODEL: "moving the model to the device",
        "inputs": "moving the batch to the device",
        "forward": "the forward pass",
        "backward": "the backward pass",
        "optimizer": "the optimizer step",
        "evaluation": "evaluation",
        PROMPT: "generation, where the prompts are read",
        SCORING: "scoring what was generated",
        METRICS: "the metrics of an update",
        GROWTH: "generation, for keys and values",
        "outputs": "evaluation, which keeps the logits of all batches",
    }
    if phase.startswith(TOKEN):
        return "out of memory in generation"
    return f"out of memory in {places.get(phase, places[MODEL])}"


class Steps(Protocol):
    """Training steps at one batch size: prepared in two stages, then run one by one."""

    def build(self, device: str) -> None:
        """Build what the steps need, with the model on the device (``cuda``, ``mps``, …)."""

    @property
    def recorded(self) -> Recorded:
        """The training that a recorder observes; available once built."""

    def begin(self) -> None:
        """Do what is left before the first step; its memory counts."""

    def step(self) -> None:
        """Run one whole training step."""

    def out_of_memory(self, error: BaseException) -> str:
        """Description of where memory ran out."""


def steps_of(order: TrialOrder) -> Steps:
    if isinstance(order.workload, Factory):
        return ScriptSteps(order.workload, order.batch_size)
    if isinstance(order.workload, Program):
        raise TypeError("a program runs by itself; see engine.measurement.programs")
    return WorkloadSteps(order.workload, order.batch_size, forward_only=order.forward_only)


def agreement(order: TrialOrder, device: str) -> Callable[[float], float]:
    """Turns a step's seconds into those of the order's slowest GPU."""
    if order.world_size == 1:
        return lambda seconds: seconds
    return partial(slowest, device=device)


class WorkloadSteps:
    """The training step of a workload on one batch.

    Args:
        workload: The workload to train.
        batch_size: Samples per step.
        forward_only: Whether to run the forward pass alone.
    """

    def __init__(self, workload: Workload, batch_size: int, *, forward_only: bool = False) -> None:
        self._workload = workload
        self._batch_size = batch_size
        self._step = step_of(forward_only)
        self._training: TrainingState | None = None
        self._evaluation: Evaluation | None = None
        self._completions: Completions | None = None
        self._forward_only = forward_only

    def build(self, device: str) -> None:
        """Build the model and the batch; the batch stays on the host."""
        with DrawingLater():
            model = place(build_model(self._workload), self._workload, device)
        draw(model)
        self._training = prepare(self._workload, model)
        self._batch = make_batch(self._workload, self._batch_size)
        self._evaluation = None if self._forward_only else evaluation_of(self._workload)
        if not self._forward_only:
            self._completions = completions_of(self._workload, self._batch_size)

    @property
    def recorded(self) -> TrainingState:
        if self._training is None:
            raise ValueError("not built yet")
        return self._training

    def begin(self) -> None:
        """Nothing to do: every byte on the device comes from the model and the steps."""

    def step(self) -> None:
        """Run one training step; after the first one, the evaluation too."""
        self._step(self.recorded, self._batch)
        if self._evaluation is not None:
            evaluation, self._evaluation = self._evaluation, None
            evaluate(self.recorded, evaluation)
        if self._completions is not None:
            completions, self._completions = self._completions, None
            roll_out(self.recorded, completions)

    def out_of_memory(self, error: BaseException) -> str:
        return out_of_memory_in(self._training.phase if self._training else MODEL)
