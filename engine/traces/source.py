"""A source of traces, and the stages that know nothing of what is traced.

Stages wrap one another, so a debugger shows by their attributes where a trace comes from, such as
``Kept(Alone(ShallowModels(WholeModel(...))))``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..interface.request import Request
from ..tracing.trace import Trace


class TraceSource(Protocol):
    """Gives the traces of one thing that is trained, at one batch size after another."""

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size."""


@dataclass(eq=False)
class Kept:
    """The traces of another source, each asked for once.

    Attributes:
        source: The other source.
        traces: Those asked for so far, by batch size.
    """

    source: TraceSource
    traces: dict[int, Trace] = field(default_factory=dict, repr=False)

    def at(self, batch_size: int) -> Trace:
        if batch_size not in self.traces:
            self.traces[batch_size] = self.source.at(batch_size)
        return self.traces[batch_size]


@dataclass(eq=False)
class Alone:
    """Batch sizes that are each traced by themselves, as no rule gives them; the traces say so.

    Attributes:
        each: Traces them.
    """

    each: TraceSource

    def at(self, batch_size: int) -> Trace:
        return replace(self.each.at(batch_size), alone=True)


@dataclass(eq=False)
class ByMicroBatches:
    """A step that accumulates gradients at some batch sizes only.

    Attributes:
        request: Says how many micro-batches a step has at a batch size.
        trace_with: Traces a step of 1 micro-batch, or of 2, which stand for any larger number:
            from the second one on, each is like the one before.
        sources: What it returned so far, by the number of micro-batches.
    """

    request: Request = field(repr=False)
    trace_with: Callable[[int], TraceSource] = field(repr=False)
    sources: dict[int, TraceSource] = field(default_factory=dict)

    def at(self, batch_size: int) -> Trace:
        return self.source_at(batch_size).at(batch_size)

    def source_at(self, batch_size: int) -> TraceSource:
        """The source of a step with as many micro-batches as there are at a batch size."""
        count = self.request.micro_batches_traced(batch_size)
        if count not in self.sources:
            self.sources[count] = self.trace_with(count)
        return self.sources[count]
