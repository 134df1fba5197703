"""Predictions for one subject on one GPU: a model that MemoryMark builds, or a script."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..allocator.options import AllocatorOptions
from ..answer.conclusion import Findings
from ..core.errors import DoesNotFit
from ..gpus import Gpu
from ..interface.request import Request
from ..interface.result import StepProfile
from ..interface.trial import Trial
from ..traces.source import TraceSource
from .probe import timed
from .timing.correction import UNCORRECTED, Correction
from .timing.step_time import time_range
from .timing.work import StepTime


class Prediction(ABC):
    """Predictions for one subject on one GPU; each batch size once.

    Args:
        request: The request for the subject.
        gpu: The GPU.
        traces: The traces of the subject there.
        correction: Correction of its step times by measured steps.
    """

    def __init__(
        self,
        request: Request,
        gpu: Gpu,
        traces: TraceSource,
        correction: Correction = UNCORRECTED,
    ) -> None:
        self.request, self.gpu, self.traces, self.correction = request, gpu, traces, correction
        self.allocator = AllocatorOptions.parse(request.allocator)
        self._fits: dict[tuple[int, bool], Trial] = {}
        self._step_times: dict[int, StepTime] = {}

    def fit(self, batch_size: int, *, careful: bool = False) -> Trial:
        """The trial of a batch size with its memory alone, to search with.

        Args:
            batch_size: The batch size.
            careful: Whether its interval is widened where the allocator packs other batches nearby
                otherwise, which takes three times as long.
        """
        key = (batch_size, careful)
        if key not in self._fits:
            self._fits[key] = self._fit(batch_size, careful=careful)
        return self._fits[key]

    def predict(self, batch_size: int, *, careful: bool = False) -> Trial:
        """The same with the time of its step, where it fits: one that cannot run takes none."""
        trial = self.fit(batch_size, careful=careful)
        if not trial.fits:
            return trial
        step = self.step_time(batch_size)
        span = time_range(self.traces.at(batch_size).operations, self.gpu, step)
        return timed(trial, step, self.samples_of_step(batch_size), span, self.correction)

    def step_time(self, batch_size: int) -> StepTime:
        """The time of a step in its parts."""
        if batch_size not in self._step_times:
            self._step_times[batch_size] = self._step_time(batch_size)
        return self._step_times[batch_size]

    def speed(self, batch_size: int) -> float:
        """Samples per second of a batch size that fits."""
        seconds = self.step_time(batch_size).seconds * self.correction.factor(batch_size)
        return self.samples_of_step(batch_size) / seconds

    @property
    @abstractmethod
    def usable_bytes(self) -> int:
        """Bytes that the caching allocator can have, by which trials are judged."""

    @abstractmethod
    def samples_of_step(self, batch_size: int) -> float:
        """Samples of one step, over its micro-batches and GPUs; in the mean, where that differs."""

    @abstractmethod
    def profile(self, batch_size: int) -> StepProfile:
        """The parts of a step of a batch size."""

    @abstractmethod
    def refusal(self, smallest: Trial) -> DoesNotFit:
        """The error for a subject of which not even the smallest batch fits."""

    @abstractmethod
    def completed(self, found: Findings) -> Findings:
        """Findings with what is known of this kind of subject alone: caveats, phases and more."""

    @abstractmethod
    def _fit(self, batch_size: int, *, careful: bool) -> Trial:
        """The trial of a batch size without its time."""

    @abstractmethod
    def _step_time(self, batch_size: int) -> StepTime:
        """The time of a step."""
