"""Traces a deep model by way of shallow ones: a model's blocks repeat, and each takes as long."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property

import torch

from ..choices import Parallelism
from ..errors import EngineError
from ..tracing.alignment import NotRepeating
from ..tracing.blocks import Run, runs_of, with_fewer
from ..tracing.depth import DeepTrace
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Trace
from ..workload import Workload
from .tracer import meta_model, trace_model

_SHALLOWEST = (2, 4)
"""Repeats in the shallowest model: the second last may be unlike the others too, where gradients
of all blocks add up, or where the parameters of the next block are gathered ahead."""

_WORTHWHILE = 0.7
"""Of the blocks of the whole model, traced twice: more of them in shallow models are not."""


class Depths:
    """Traces a workload at one batch size after another; a :data:`~.tracer.TraceAt`.

    The first trace is checked: one of a deeper model than those that gave it must come out the
    same as it would be given. Otherwise, the model is traced as a whole.

    Args:
        workload: What is trained.
        behaviour: Of the GPU; ``None`` traces what the CPU does.
        fewest: What :attr:`fewest` was found to be, where the workload was traced before.
    """

    def __init__(
        self, workload: Workload, behaviour: CudaBehaviour | None, fewest: int | None = None
    ) -> None:
        self._workload, self._behaviour = workload, behaviour
        self._is_checked = fewest is not None
        self._why_whole = ""
        if fewest is not None:
            self._worth_trying = [fewest] if fewest else []

    def __call__(self, batch_size: int) -> Trace:
        """Trace two training steps at one batch size; raises what :func:`~.tracer.trace` does."""
        for fewest in self._worth_trying:
            try:
                return self._from_shallow(batch_size, fewest)
            except NotRepeating as error:
                self._why_whole = str(error)
        self._worth_trying = []
        return self._trace(copy.deepcopy(self._model), batch_size)

    @property
    def fewest(self) -> int:
        """Repeats in the shallowest model that it was traced with; 0 if it was traced whole."""
        return self._worth_trying[0] if self._worth_trying else 0

    @property
    def how(self) -> str:
        """How it was traced, once it was."""
        if self.fewest:
            repeated = sum(run.period for run in self._runs)
            whole = sum(run.blocks for run in self._runs)
            least, most = self.fewest * repeated, (self.fewest + 2) * repeated
            return f"with {least} to {most} blocks in place of {whole}"
        reason = f", since {self._why_whole}" if self._why_whole else ""
        return f"as a whole{reason}"

    @cached_property
    def _model(self) -> torch.nn.Module:
        return meta_model(self._workload)

    @cached_property
    def _runs(self) -> list[Run]:
        if self._workload.parallelism is Parallelism.DDP:
            return []  # buckets of gradients do not end where blocks do
        runs = runs_of(self._model)
        longest = max((run.blocks for run in runs), default=0)
        return [run for run in runs if 4 * run.blocks >= longest]

    @cached_property
    def _worth_trying(self) -> list[int]:
        """How many repeats the shallowest model may have; once one was found, that one."""
        return [fewest for fewest in _SHALLOWEST if self._is_worth(fewest)]

    def _is_worth(self, fewest: int) -> bool:
        whole = sum(run.blocks for run in self._runs)
        deepest = fewest + 2
        depths = [*self._depths(fewest), [deepest] * len(self._runs), *self._depths(fewest)]
        if any(run.repeats < deepest for run in self._runs):
            return False
        traced = sum(
            run.blocks + run.period * (count - run.repeats)
            for repeats in depths
            for run, count in zip(self._runs, repeats, strict=True)
        )
        return traced < _WORTHWHILE * 2 * whole

    def _depths(self, fewest: int) -> list[list[int]]:
        """Repeats of each run in the shallow models: the fewest, then one more of each run."""
        runs = range(len(self._runs))
        return [[fewest] * len(runs), *([fewest + (one == run) for one in runs] for run in runs)]

    def _from_shallow(self, batch_size: int, fewest: int) -> Trace:
        shallow, *deeper = (
            self._at(batch_size, fewest, repeats) for repeats in self._depths(fewest)
        )
        deep = DeepTrace(self._runs, fewest, shallow, deeper)
        if not self._is_checked:
            repeats = [fewest + 2] * len(self._runs)
            _check_alike(deep.at(repeats), self._at(batch_size, fewest, repeats))
            self._worth_trying, self._is_checked = [fewest], True
        return deep.at([run.repeats for run in self._runs])

    def _at(self, batch_size: int, fewest: int, repeats: Sequence[int]) -> Trace:
        """The trace of the model with so many repeats.

        Raises:
            NotRepeating: If it does not run with fewer of its blocks.
        """
        try:
            model = with_fewer(self._model, self._runs, fewest, repeats)
            return self._trace(model, batch_size)
        except EngineError:
            raise
        except Exception as error:  # the code of the model expects all of its blocks
            raise NotRepeating(f"{type(error).__name__}: {error}") from error

    def _trace(self, model: torch.nn.Module, batch_size: int) -> Trace:
        return trace_model(model, self._workload, batch_size, self._behaviour)


def _check_alike(given: Trace, traced: Trace) -> None:
    if given != traced or given.operations != traced.operations:
        raise NotRepeating("with still more blocks, a step does something else")
