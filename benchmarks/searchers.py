"""The searches to compare, and the training steps with a memory limit that all of them run.

The searches are those of the installed tools, a linear scan, and MemoryMark's. On the CPU the
workload is small and its memory is counted to the byte.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from typing import Any, Protocol

import torch

from engine.answer.expectation import expected_limit
from engine.answer.search import find_largest
from engine.interface.request import MAX_BATCH_SIZE
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.measurement.steps import WARM_UP_STEPS
from engine.models.presets import PRESETS
from engine.prediction.probe import predict_live_memory
from engine.step.batches import make_batch
from engine.step.training import build_model, prepare, training_step
from engine.traces.batch_rule import trace_every_batch_size
from engine.tracing.recorded import MemoryLimitExceeded
from engine.tracing.recorder import MemoryRecorder

STEPS = WARM_UP_STEPS + 1
"""Whole training steps in a trial: the default of Lightning's finder."""


def small_workload() -> Workload:
    """A BERT with two small layers, AdamW and 32 tokens: a step takes milliseconds."""
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
    """Compute on one thread: synchronising two costs more than small tensors gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class OutOfMemory(RuntimeError):
    """Has the message of PyTorch's CPU allocator, which Lightning and Accelerate look for."""

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
        return self._recorder.peak_bytes

    def step(self) -> None:
        self._recorder.record_step(partial(training_step, self._training, self._batch))


class LimitedTraining:
    """Training steps under a memory limit. Every trial starts with a fresh model.

    Args:
        workload: The workload to train.
        limit_bytes: The memory limit.
        session: Creates the session of a trial from workload, batch size and limit.

    Attributes:
        tried: Batch sizes in the order of trying, and whether they fitted.
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
        self._new_session = session
        self._session: Session | None = None

    def begin(self, batch_size: int) -> None:
        """Begin a trial.

        Raises:
            OutOfMemory: If not even the model fits.
        """
        self._session = None  # frees the last trial's model before the next is built
        self.tried.append((batch_size, True))
        try:
            self._session = self._new_session(self.workload, batch_size, self.limit_bytes)
        except _OUT_OF_MEMORY as error:
            raise self._failed(error) from None

    def step(self) -> int:
        """Run one step of the trial; returns the peak so far, in bytes.

        Raises:
            OutOfMemory: If it exceeds the limit.
        """
        if self._session is None:
            raise ValueError("no trial has begun")
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


LINEAR_STEP = 8
CURRENT_BATCH_SIZE = 16
"""The current batch size in MemoryMark's search, which is measured first, as in an analysis."""


_TUNER = "lightning.pytorch.tuner"


@dataclass(frozen=True)
class Searcher:
    """One way to search for the largest batch.

    Attributes:
        name: Its name in the table.
        module: The tool's module; empty for our own searches.
        search: Returns the largest batch it finds.
    """

    name: str
    module: str
    search: Callable[[LimitedTraining], int]

    @property
    def version(self) -> str | None:
        """The installed version of its package; ``None`` if it is not installed."""
        if not self.module:
            return ""
        try:
            return metadata.version(self.module.partition(".")[0])
        except metadata.PackageNotFoundError:
            return None

    def load(self) -> None:
        """Import its module before the search is timed, since that can take seconds."""
        if self.module:
            import_module(self.module)


def lightning(mode: str, training: LimitedTraining) -> int:
    """Lightning's BatchSizeFinder, with its defaults.

    Each of its trials runs three steps of the workload inside ``training_step``; what Lightning
    itself optimizes is a dummy parameter.
    """
    pytorch = import_module("lightning.pytorch")
    tuning = import_module(_TUNER)
    with _quiet(), tempfile.TemporaryDirectory() as folder:
        trainer = pytorch.Trainer(
            accelerator="cpu",
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = _lightning_module(pytorch.LightningModule, training)
        tuner = tuning.Tuner(trainer)
        return int(tuner.scale_batch_size(module, mode=mode, steps_per_trial=STEPS))


def _lightning_module(base: Any, training: LimitedTraining) -> Any:
    torch = import_module("torch")

    class Module(base):  # type: ignore[misc]  # Lightning is loaded only where it is installed
        """Runs the limited training as Lightning's steps."""

        def __init__(self) -> None:
            super().__init__()
            self.batch_size = 2
            self.number = torch.nn.Parameter(torch.zeros(1))

        def train_dataloader(self) -> Any:
            samples = range(MAX_BATCH_SIZE)
            return torch.utils.data.DataLoader(samples, batch_size=self.batch_size)

        def training_step(self, batch: Any, batch_index: int) -> Any:
            if batch_index == 0:
                training.begin(len(batch))
            training.step()
            return self.number.sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    return Module()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's advice on workers, loggers and devices."""
    logs = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def accelerate(training: LimitedTraining) -> int:
    """Accelerate's find_executable_batch_size, with its defaults: 128, then 90% of that, etc."""
    utils = import_module("accelerate.utils")

    def train(batch_size: int) -> int:
        training.run(batch_size)
        return batch_size

    return int(utils.find_executable_batch_size(train)())


def linear(training: LimitedTraining, step: int = LINEAR_STEP, start: int = 0) -> int:
    """Every multiple of ``step`` above ``start``, until one fails."""
    largest = start
    for batch_size in range(start + step, MAX_BATCH_SIZE + 1, step):
        try:
            training.run(batch_size)
        except OutOfMemory:
            break
        largest = batch_size
    return largest


def true_maximum(workload: Workload, limit_bytes: int) -> int:
    """The largest batch that fits: a coarse scan, then every size above its answer."""
    coarse = linear(LimitedTraining(workload, limit_bytes))
    return linear(LimitedTraining(workload, limit_bytes), step=1, start=coarse)


def ours(training: LimitedTraining) -> int:
    """MemoryMark's search: a prediction gives the guess, measured trials the answer."""
    traces = trace_every_batch_size(training.workload, None)

    def predict(batch_size: int) -> Trial:
        return predict_live_memory(training.limit_bytes, traces.at(batch_size))

    def probe(batch_size: int) -> Trial:
        try:
            peak = training.run(batch_size)
        except OutOfMemory as error:
            return Trial(batch_size, fits=False, source=Source.MEASURED, failure=str(error))
        return Trial(batch_size, fits=True, source=Source.MEASURED, peak_allocated_bytes=peak)

    limit = training.limit_bytes
    search = partial(find_largest, limit_bytes=limit)
    guess = search(predict).largest_batch_size
    expect = expected_limit(predict, guess, batch_multiple=1, limit_bytes=limit)
    return search(probe, expect=expect, known=[probe(CURRENT_BATCH_SIZE)]).largest_batch_size


SEARCHERS = (
    Searcher("Lightning BatchSizeFinder, power", _TUNER, partial(lightning, "power")),
    Searcher("Lightning BatchSizeFinder, binsearch", _TUNER, partial(lightning, "binsearch")),
    Searcher("Accelerate find_executable_batch_size", "accelerate.utils", accelerate),
    Searcher(f"linear scan by {LINEAR_STEP}", "", linear),
    Searcher("MemoryMark", "", ours),
)
