"""A training with a memory limit that every search can run; on the CPU a small one, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import torch

from engine.measurement.steps import WARM_UP_STEPS
from engine.models.presets import PRESETS
from engine.step.batches import make_batch
from engine.step.training import build_model, prepare, training_step
from engine.tracing.recorder import MemoryLimitExceeded, MemoryRecorder
from engine.workload import Workload

STEPS = WARM_UP_STEPS + 1
"""Whole training steps in a trial: what Lightning's finder runs unless told otherwise."""


def small_workload() -> Workload:
    """A BERT of two small layers, trained by AdamW on 32 tokens: a step takes milliseconds."""
    small = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 1000,
    }
    config = PRESETS["bert"].config() | small
    return Workload("small-bert", config=config, sequence_length=32)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: small tensors gain nothing from two that wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class OutOfMemory(RuntimeError):
    """What PyTorch's CPU allocator raises, in words that Lightning and Accelerate look for."""

    def __init__(self, why: str) -> None:
        super().__init__(f"DefaultCPUAllocator: can't allocate memory: {why}")


_OUT_OF_MEMORY = (MemoryLimitExceeded, torch.OutOfMemoryError)


class Session(Protocol):
    """A fresh model with its optimizer, stepping at one batch size under a limit."""

    @property
    def peak_bytes(self) -> int:
        """The most bytes of tensors that were alive at once."""

    def step(self) -> None:
        """Run one whole training step."""


class CpuSession:
    """A fresh model with its optimizer, stepping at one batch size under the limit."""

    def __init__(self, workload: Workload, batch_size: int, limit_bytes: int) -> None:
        self._training = prepare(workload, build_model(workload))
        self._batch = make_batch(workload, batch_size)
        self._recorder = MemoryRecorder(self._training, batch_size, limit_bytes=limit_bytes)

    @property
    def peak_bytes(self) -> int:
        """The most bytes of tensors that were alive at once."""
        return self._recorder.peak_bytes

    def step(self) -> None:
        """Run one whole training step."""
        self._recorder.record_step(partial(training_step, self._training, self._batch))


class LimitedTraining:
    """The training that is searched. Every trial starts anew, whichever tool asks for it.

    Args:
        workload: What is trained.
        limit_bytes: The memory limit.
        session: Makes the session of a trial, of the workload, its batch size and the limit.

    Attributes:
        tried: Batch sizes in the order in which they were tried, with whether they fitted.
    """

    def __init__(
        self,
        workload: Workload,
        limit_bytes: int,
        session: Callable[[Workload, int, int], Session] = CpuSession,
    ) -> None:
        self.workload = workload
        self.limit_bytes = limit_bytes
        self.tried: list[tuple[int, bool]] = []
        self._make = session
        self._session: Session | None = None

    def begin(self, batch_size: int) -> None:
        """Begin a trial.

        Raises:
            OutOfMemory: If not even the model fits.
        """
        self._session = None  # frees the last trial's model before the next is built
        self.tried.append((batch_size, True))
        try:
            self._session = self._make(self.workload, batch_size, self.limit_bytes)
        except _OUT_OF_MEMORY as error:
            raise self._failed(error) from None

    def step(self) -> int:
        """Run one step of the trial; returns the peak so far, in bytes.

        Raises:
            OutOfMemory: If it exceeds the limit.
        """
        if self._session is None:
            raise ValueError("no trial was begun")
        try:
            self._session.step()
        except _OUT_OF_MEMORY as error:
            raise self._failed(error) from None
        return self._session.peak_bytes

    def run(self, batch_size: int) -> int:
        """Run a whole trial; returns its peak, in bytes.

        Raises:
            OutOfMemory: If it exceeds the limit.
        """
        self.begin(batch_size)
        return max(self.step() for _ in range(STEPS))

    def _failed(self, error: BaseException) -> OutOfMemory:
        self.tried[-1] = (self.tried[-1][0], False)
        return OutOfMemory(str(error))
