"""Traces a deep model by way of shallow ones: a model's blocks repeat, and each takes as long."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property

from ..core.choices import ZERO, Parallelism
from ..core.errors import EngineError
from ..step.pipelining import Stage
from ..tracing.alignment import NotRepeating
from ..tracing.blocks import Run, runs_of, with_fewer
from ..tracing.depth import DeepTrace, check_alike
from ..tracing.trace import Trace
from .tracer import WholeModel

_MARGINS = (1, 2)
"""Repeats that the shallowest model has on either side of the gap: the second last may be unlike
the others too, where gradients of all blocks add up, or where the parameters of the next block are
gathered ahead."""

_WORTHWHILE = 0.8
"""Share of the modules of the whole model, traced twice, above which shallow models do not pay."""


class ShallowModels:
    """Traces a workload at one batch size after another, each once, by way of shallow models.

    The first trace is checked: one of a deeper model than those that gave it must come out the
    same as it would be given. Otherwise, the model is traced as a whole. At another batch size, one
    shallow model gives the sizes, as long as all else in it is the same.

    Args:
        whole: Traces the whole model, and those with fewer blocks.
        margin: The :attr:`margin` found where the workload was traced before.

    Attributes:
        whole: As given.
        traces: Those asked for so far, by batch size.
        why_whole: Reason why the last shallow models that failed do not give them.
    """

    def __init__(self, whole: WholeModel, margin: int | None = None) -> None:
        self.whole = whole
        self.traces: dict[int, Trace] = {}
        self.why_whole = ""
        self._is_checked = margin is not None
        self._deep: DeepTrace | None = None  # at the first batch size
        if margin is not None:
            self._worth_trying = [margin] if margin else []

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.whole!r}, batch_sizes={[*self.traces]}, "
            f"why_whole={self.why_whole!r})"
        )

    def at(self, batch_size: int) -> Trace:
        """Trace two training steps at one batch size; raises what :func:`~.tracer.trace` does."""
        if batch_size not in self.traces:
            self.traces[batch_size] = self._trace_anew(batch_size)
        return self.traces[batch_size]

    def _trace_anew(self, batch_size: int) -> Trace:
        for margin in self._worth_trying:
            try:
                return self._from_shallow(batch_size, margin)
            except NotRepeating as error:
                self.why_whole = str(error)
        self._worth_trying = []
        return self.whole.at(batch_size)

    @property
    def margin(self) -> int:
        """Repeats on either side of the gap in the shallowest model; 0 if it was traced whole."""
        return self._worth_trying[0] if self._worth_trying else 0

    @property
    def how(self) -> str:
        """Description of the tracing, once it was done."""
        if self.margin:
            least, most = (
                sum(run.period * count for run, count in zip(self._runs, repeats, strict=True))
                for repeats in (self._repeats(self.margin), self._repeats(self.margin, 2))
            )
            whole = sum(run.blocks for run in self._runs)
            return f"with {least} to {most} blocks in place of {whole}"
        reason = f", since {self.why_whole}" if self.why_whole else ""
        return f"as a whole{reason}"

    @cached_property
    def _runs(self) -> list[Run]:
        if self.whole.workload.parallelism in (Parallelism.DDP, *ZERO):
            return []  # buckets of gradients do not end where blocks do
        runs = runs_of(self.whole.model)
        longest = max((run.blocks for run in runs), default=0)
        return [run for run in runs if 4 * run.blocks >= longest]

    @cached_property
    def _named_in_traces(self) -> list[Run]:
        """The runs, named by what is traced, such as a stage of a pipeline that holds the model."""
        held = f"{Stage.HOLDS}." if self.whole.workload.pipeline_parallel > 1 else ""
        return [replace(run, name=f"{held}{run.name}") for run in self._runs]

    @cached_property
    def _worth_trying(self) -> list[int]:
        """Margins to try; once the right one was found, that one alone."""
        return [margin for margin in _MARGINS if self._is_worth(margin)]

    def _is_worth(self, margin: int) -> bool:
        deepest, one_more = self._repeats(margin, 2), self._repeats(margin, 1)
        enough = all(run.repeats >= count for run, count in zip(self._runs, deepest, strict=True))
        if not self._runs or not enough:
            return False
        whole = len([*self.whole.model.modules()])
        traced = sum(
            whole
            - sum(
                self._modules_of(run) * (run.repeats - count)
                for run, count in zip(self._runs, repeats, strict=True)
            )
            for repeats in (*self._depths(margin), deepest, one_more)
        )
        return traced < _WORTHWHILE * 2 * whole

    def _modules_of(self, run: Run) -> int:
        """Number of modules in one repeat, to which the time to trace it is about proportional."""
        blocks = [*self.whole.model.get_submodule(run.name).children()]
        one = blocks[run.start : run.start + run.period]
        return sum(len([*block.modules()]) for block in one)

    def _repeats(self, margin: int, more: int = 0) -> list[int]:
        """Repeats of each run in the shallowest model, and ``more`` more."""
        return [run.shallowest(margin) + more for run in self._runs]

    def _depths(self, margin: int) -> list[list[int]]:
        """Repeats of each run in the shallow models: the fewest, then one more of each run."""
        fewest = self._repeats(margin)
        runs = range(len(fewest))
        return [fewest, *([fewest[one] + (one == run) for one in runs] for run in runs)]

    def _from_shallow(self, batch_size: int, margin: int) -> Trace:
        whole = [run.repeats for run in self._runs]
        at = cache(lambda *repeats: self._at(batch_size, margin, repeats))
        if self._deep is not None:
            one_more = self._repeats(margin, 1)
            try:
                return self._deep.at_batch_of(at(*one_more), one_more, whole)
            except NotRepeating:  # such as at batch 1, where tensors are contiguous otherwise
                if batch_size > 1 and len(self._runs) > 1:
                    self._deep = None  # that trace is none of the depths, so it was in vain
        shallow, *deeper = (at(*repeats) for repeats in self._depths(margin))
        deep = DeepTrace(self._named_in_traces, margin, shallow, deeper)
        following = {} if self._is_checked else self._checked(deep, batch_size, margin)
        self._worth_trying, self._is_checked = [margin], True
        if not self.traces:
            self._deep = deep
        self.traces |= following
        return deep.at(whole)

    def _checked(self, deep: DeepTrace, batch_size: int, margin: int) -> dict[int, Trace]:
        """The trace at the next batch size, where it shows that blocks repeat.

        It is needed anyway, and of a deeper model than those that gave ``deep``. Where a step does
        something else there, such a model is traced at the same batch size, and nothing returned.

        Raises:
            NotRepeating: If a deeper model does not come out as the shallow ones have it.
        """
        deepest, following = self._repeats(margin, 2), batch_size + 1
        if batch_size > 1:  # at 1, tensors are contiguous otherwise
            with suppress(NotRepeating):
                there = self._at(following, margin, deepest)
                whole = [run.repeats for run in self._runs]
                return {following: deep.at_batch_of(there, deepest, whole)}
        check_alike(deep.at(deepest), self._at(batch_size, margin, deepest))
        return {}

    def _at(self, batch_size: int, margin: int, repeats: Sequence[int]) -> Trace:
        """The trace of the model with these repeats.

        Raises:
            NotRepeating: If it does not run with fewer of its blocks.
        """
        try:
            model = with_fewer(self.whole.model, self._runs, margin, repeats)
            return self.whole.trace(model, batch_size)
        except EngineError:
            raise
        except Exception as error:  # the code of the model expects all of its blocks
            raise NotRepeating(f"{type(error).__name__}: {error}") from error
