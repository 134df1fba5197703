"""What a trial runs, whatever it trains: a workload of ours, or a person's own code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from engine.measurement.protocol import TrialOrder
from engine.measurement.steps import MODEL, out_of_memory_in
from engine.own.factory import Factory
from engine.own.steps import OwnSteps
from engine.parallel.members import place, slowest
from engine.step.batches import make_batch
from engine.step.training import Training, build_model, prepare, step_of
from engine.tracing.recorder import Recorded
from engine.workload import Workload


class Steps(Protocol):
    """Training steps of one batch size, made ready in two moves and then run one by one."""

    def build(self, device: str) -> None:
        """Make what the steps need, and put the model on the device (``cuda``, ``mps``, …)."""

    @property
    def recorded(self) -> Recorded:
        """What a recorder asks about; known once it is built."""

    def begin(self) -> None:
        """What is left to do before the first step, and already counts."""

    def step(self) -> None:
        """Run one whole training step."""

    def out_of_memory(self, error: BaseException) -> str:
        """Where memory ran out, in words."""


def steps_of(order: TrialOrder) -> Steps:
    """The steps that an order asks for."""
    if isinstance(order.workload, Factory):
        return OwnSteps(order.workload, order.batch_size)
    return WorkloadSteps(order.workload, order.batch_size, forward_only=order.forward_only)


def agreement(order: TrialOrder, device: str) -> Callable[[float], float]:
    """What the GPUs of an order take a step's seconds for: those of the slowest."""
    if order.world_size == 1:
        return lambda seconds: seconds
    return partial(slowest, device=device)


class WorkloadSteps:
    """The training step of a workload, with one batch of it.

    Args:
        workload: What is trained.
        batch_size: Samples per step.
        forward_only: Whether to run the forward pass alone.
    """

    def __init__(self, workload: Workload, batch_size: int, *, forward_only: bool = False) -> None:
        self._workload = workload
        self._batch_size = batch_size
        self._step = step_of(forward_only)
        self._training: Training | None = None

    def build(self, device: str) -> None:
        """Build the model and the batch; the batch stays on the host."""
        model = place(build_model(self._workload), self._workload, device)
        self._training = prepare(self._workload, model)
        self._batch = make_batch(self._workload, self._batch_size)

    @property
    def recorded(self) -> Training:
        """The training, once it is built."""
        if self._training is None:
            raise ValueError("not built yet")
        return self._training

    def begin(self) -> None:
        """Nothing: every byte on the device comes from the model and from the steps."""

    def step(self) -> None:
        """Run one step."""
        self._step(self.recorded, self._batch)

    def out_of_memory(self, error: BaseException) -> str:
        """The phase in which memory ran out."""
        return out_of_memory_in(self._training.phase if self._training else MODEL)
