"""The searches that are compared: the installed tools themselves, a linear scan, and ours."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from typing import Any

from engine.answer.search import find_largest
from engine.benchmarks.limited_training import STEPS, LimitedTraining, OutOfMemory
from engine.prediction.probe import predict_live_memory
from engine.request import LARGEST_BATCH_SIZE
from engine.result import Source, Trial
from engine.tracing.tracer import trace_every_batch_size
from engine.workload import Workload

LINEAR_STEP = 8
CURRENT_BATCH_SIZE = 16
"""What our search takes for the batch size used today. It is measured first, as in an analysis."""


_TUNER = "lightning.pytorch.tuner"


@dataclass(frozen=True)
class Searcher:
    """One way to search for the largest batch.

    Attributes:
        name: As the table shows it.
        module: The module it comes from; empty for what is ours.
        search: Searches a training and returns its answer.
    """

    name: str
    module: str
    search: Callable[[LimitedTraining], int]

    @property
    def version(self) -> str | None:
        """The installed version of its package; ``None`` if it is missing."""
        if not self.module:
            return ""
        try:
            return metadata.version(self.module.partition(".")[0])
        except metadata.PackageNotFoundError:
            return None

    def load(self) -> None:
        """Import its module, which can take seconds that are not part of a search."""
        if self.module:
            import_module(self.module)


def lightning(mode: str, training: LimitedTraining) -> int:
    """Lightning's BatchSizeFinder, with its defaults.

    Each of its trials runs three steps of ours inside ``training_step``; what Lightning itself
    optimizes is one number that nothing depends on.
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
            samples = range(LARGEST_BATCH_SIZE)
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
    """Without Lightning's advice on workers, loggers and devices."""
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
    """Accelerate's find_executable_batch_size, with its defaults: 128, then 90 % of it, ..."""
    utils = import_module("accelerate.utils")

    def train(batch_size: int) -> int:
        training.run(batch_size)
        return batch_size

    return int(utils.find_executable_batch_size(train)())


def linear(training: LimitedTraining, step: int = LINEAR_STEP, start: int = 0) -> int:
    """Every multiple of ``step`` above ``start``, until one fails."""
    largest = start
    for batch_size in range(start + step, LARGEST_BATCH_SIZE + 1, step):
        try:
            training.run(batch_size)
        except OutOfMemory:
            break
        largest = batch_size
    return largest


def true_maximum(workload: Workload, limit_bytes: int) -> int:
    """The largest batch that fits: every one is tried from the answer of a coarse scan on."""
    coarse = linear(LimitedTraining(workload, limit_bytes))
    return linear(LimitedTraining(workload, limit_bytes), step=1, start=coarse)


def ours(training: LimitedTraining) -> int:
    """A prediction gives the guess, measured trials the answer, as for the local device."""
    trace_at = trace_every_batch_size(training.workload, None)

    def predict(batch_size: int) -> Trial:
        return predict_live_memory(training.limit_bytes, trace_at(batch_size))

    def probe(batch_size: int) -> Trial:
        try:
            peak = training.run(batch_size)
        except OutOfMemory as error:
            return Trial(batch_size, fits=False, source=Source.MEASURED, failure=str(error))
        return Trial(batch_size, fits=True, source=Source.MEASURED, peak_allocated_bytes=peak)

    search = partial(find_largest, limit_bytes=training.limit_bytes)
    guess = search(predict).largest_batch_size
    return search(probe, guess=guess, known=[probe(CURRENT_BATCH_SIZE)]).largest_batch_size


SEARCHERS = (
    Searcher("Lightning BatchSizeFinder, power", _TUNER, partial(lightning, "power")),
    Searcher("Lightning BatchSizeFinder, binsearch", _TUNER, partial(lightning, "binsearch")),
    Searcher("Accelerate find_executable_batch_size", "accelerate.utils", accelerate),
    Searcher(f"linear scan by {LINEAR_STEP}", "", linear),
    Searcher("MemoryMark", "", ours),
)
