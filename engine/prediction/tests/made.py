"""Predictions that are made up, for tests of what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from engine.gpus import Gpu
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Trial
from engine.prediction.predicted_analysis import ModelPrediction
from engine.prediction.timing.work import StepTime
from engine.tests.shared import step_of


class Runnable:
    """Traces of which nothing is known but that their steps run."""

    def at(self, batch_size: int) -> Any:
        return SimpleNamespace(batch_size=batch_size, check_runnable=lambda: None)


class MadePrediction(ModelPrediction):
    """Predictions of a workload on a GPU whose trials are given.

    Args:
        request: The request for the workload.
        gpu: The GPU.
        trial_of: The trial of a batch size.
        speed_of: Samples per second, also of what does not fit; by default those of the trial.
    """

    def __init__(
        self,
        request: AnalysisRequest,
        gpu: Gpu,
        trial_of: Callable[[int], Trial],
        speed_of: Callable[[int], float] | None = None,
    ) -> None:
        super().__init__(request, gpu, Runnable())
        self._trial_of, self._speed_of = cache(trial_of), speed_of

    def predict(self, batch_size: int, *, careful: bool = False) -> Trial:
        return self.fit(batch_size, careful=careful)

    def speed(self, batch_size: int) -> float:
        if self._speed_of is not None:
            return self._speed_of(batch_size)
        return self.fit(batch_size).samples_per_second or 0.0

    def _fit(self, batch_size: int, *, careful: bool) -> Trial:
        return self._trial_of(batch_size)

    def _step_time(self, batch_size: int) -> StepTime:
        return replace(step_of(1.0), filled=0.0)
