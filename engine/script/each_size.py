"""Traces of a script at one batch size after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ..core.errors import EngineError
from ..gpus import Gpu
from ..tracing.every_batch import AffineTrace
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Trace
from .request import Script
from .trace import CannotTrace, begin, check_followed, follow
from .values.placeholders import FIRST, OTHERS, Line, Placeholders, Values, first_that_runs


class EachSize:
    """Traces a script at one batch size after another, each once.

    Programs run beside each other: those at larger sizes begin before it is known what the one at
    the smallest reads.

    Args:
        script: The script to trace.
        behaviour: The GPU's; ``None`` for the CPU.
        gpu: The GPU that the script sees.
        smallest: The smallest batch size to trace.
        beside: Two larger ones, to begin beside it.

    Attributes:
        script: As given.
        low: The steps at the smallest batch size, whose placeholders the others get as far as they
            do.
        traces: Those made so far, by batch size.
    """

    def __init__(
        self,
        script: Script,
        behaviour: CudaBehaviour | None,
        gpu: Gpu | None,
        smallest: int,
        beside: tuple[int, int] | None = None,
    ) -> None:
        self._begin = partial(begin, script, behaviour=behaviour, gpu=gpu)
        self.script = script
        expected = behaviour is not None, FIRST.at
        begun = {} if beside is None else {beside: self._begin_others(beside, *expected)}
        self.low = follow(script, smallest, behaviour, gpu, smallest)
        self._found = self.low.shows_gpu, self.low.values.placeholders.at
        goes_on = self._found == expected and not self.low.trace.own_batches
        self._begun = begun if goes_on else {}
        self._beside: dict[int, Trace] = {}  # with placeholders of their own
        self.traces = {smallest: self.low.trace}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.script.name!r}, batch_sizes={[*self.traces]})"

    def settle(self) -> bool:
        """Check values at the smallest batch size; whether they had to be chosen.

        Then all sizes are traced anew, with the chosen ones. Where none makes a difference, what
        was traced beside the smallest size with values of its own stands.

        Raises:
            CannotTrace: If memory depends on values that may be of any size.
        """
        settled = check_followed(self.script, self.low)
        if not settled.decided:
            if settled.alike:
                self.traces = self._beside | self.traces
            return False
        self.low = settled
        self._found = settled.shows_gpu, settled.values.placeholders.at
        self._begun, self._beside = {}, {}
        self.traces = {settled.trace.batch_size: settled.trace}
        return True

    def at(self, batch_size: int) -> Trace:
        if batch_size not in self.traces:
            self.traces[batch_size] = self._trace(batch_size)
        return self.traces[batch_size]

    def line(self, sizes: tuple[int, int]) -> AffineTrace | None:
        """The line through the smallest and two others; ``None`` if they do not lie on one."""
        if self.low.trace.own_batches:
            return None
        begun = self._begun.pop(sizes, None) or self._begin_others(sizes, *self._found)
        for size, (values, _) in zip(sizes, begun, strict=True):  # one may loop over its samples
            times, (peak, _) = size / self.low.trace.batch_size, self.low.trace.peak_by_category()
            values.limit.set_by(times * self.low.values.operators, times * peak)
        try:
            traced = (self._other(*one) for one in zip(sizes, begun, strict=True))
            line = AffineTrace(self.low.trace, high := next(traced))  # before a longer one is there
            checked = next(traced)
            AffineTrace(high, checked)  # refuses unlike steps
        except EngineError:
            return None
        return line if line.at(checked.batch_size).sizes == checked.sizes else None

    def runs(self, batch_size: int) -> bool:
        """Whether the script takes batches of that size."""
        if batch_size in self._beside:
            return True
        try:
            self.at(batch_size)
        except CannotTrace:
            return False
        return True

    def _begin_others(
        self, sizes: tuple[int, int], shows_gpu: bool, at: Mapping[Line, Placeholders]
    ) -> list[tuple[Values, Callable[[], Trace]]]:
        """Begin to trace these sizes, each with placeholders of its own."""
        begun = []
        for size, other in zip(sizes, OTHERS, strict=True):
            values = Values(replace(other, at=at))
            traced = self._begin(batch_size=size, shows_gpu=shows_gpu, values=values)
            begun.append((values, traced))
        return begun

    def _other(self, size: int, begun: tuple[Values, Callable[[], Trace]]) -> Trace:
        values, traced = begun
        trace = traced()
        self._beside[size] = trace
        if not values.read and not values.drawn:  # it would be alike with any placeholders
            self.traces.setdefault(size, trace)
        return trace

    def _trace(self, size: int) -> Trace:
        def trace_with(values: Values) -> Trace:
            return self._begin(batch_size=size, shows_gpu=self.low.shows_gpu, values=values)()

        # A larger batch may read on more lines, as values of large tensors are not followed.
        return first_that_runs(trace_with, self.low.values.placeholders)[0]
