"""Traces that several GPUs share, being traced alike but for some sizes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from ..allocator.caching import DEFAULT_OPTIONS, FREE, ReplayResult
from ..allocator.options import AllocatorOptions
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Category, Trace, on_threads
from .batch_rule import BatchRule
from .source import TraceSource

_SIZED = ("cublas_workspace_bytes", "resident_threads")
"""Facts that decide sizes alone, which are set anew for another GPU."""
Lookup = tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]
"""Name of what was looked up in a GPU's behaviour, with the arguments if it was called."""


class RecordingBehaviour:
    """A GPU's behaviour that records every look-up and its result, beside earlier ones."""

    def __init__(self, behaviour: CudaBehaviour, lookups: dict[Lookup, Any] | None = None) -> None:
        self._behaviour = behaviour
        self.lookups: dict[Lookup, Any] = {} if lookups is None else lookups

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._behaviour!r})"

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._behaviour, name)
        if not callable(value):
            self.lookups[name, (), ()] = value
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            result = self.lookups[name, args, tuple(kwargs.items())] = value(*args, **kwargs)
            return result

        return call


@dataclass(eq=False)
class Family:
    """GPUs that are traced alike, but for the sizes of cuBLAS workspaces and of sums' scratch.

    Attributes:
        lookups: What their traces looked up in a GPU's behaviour, with the results.
        source: The traces of the GPU that was traced.
        workspace_bytes: Size of a cuBLAS workspace in them.
        resized: Those of other GPUs, by the sizes of workspaces and of resident threads.
    """

    lookups: dict[Lookup, Any] = field(repr=False)
    source: TraceSource
    workspace_bytes: int
    resized: dict[tuple[int, int], Resized] = field(default_factory=dict, repr=False)

    def includes(self, behaviour: CudaBehaviour) -> bool:
        """Whether a trace with this behaviour would come out the same."""
        decisive = [result for (name, *_), result in self.lookups.items() if name not in _SIZED]
        return self.decisions_of(behaviour) == decisive

    def decisions_of(self, behaviour: CudaBehaviour) -> list[Any]:
        """Results of the look-ups with this behaviour, but for those that decide sizes alone."""
        decisions = []
        for name, args, kwargs in self.lookups:
            if name not in _SIZED:
                value = getattr(behaviour, name)
                decisions.append(value(*args, **dict(kwargs)) if callable(value) else value)
        return decisions

    @property
    def count(self) -> int:
        """Number of traces that were made."""
        source = self.source
        return 2 if isinstance(source, BatchRule) and source.single is not None else 1

    def on(self, behaviour: CudaBehaviour) -> TraceSource:
        """The traces on one of the GPUs; each batch size is replayed once."""
        sizes = behaviour.cublas_workspace_bytes, behaviour.resident_threads
        if sizes not in self.resized:
            self.resized[sizes] = Resized(self.source, self.workspace_bytes, *sizes)
        return self.resized[sizes]


@dataclass(eq=False)
class Resized:
    """The traces of a GPU with the workspaces and the scratch of another, each made once.

    Attributes:
        source: Its traces.
        traced_bytes: Size of a cuBLAS workspace in them.
        workspace_bytes: Size of a cuBLAS workspace on the other GPU.
        resident_threads: Threads that the other GPU runs at once, which decide the scratch of sums.
        traces: Those asked for so far, by batch size.
    """

    source: TraceSource
    traced_bytes: int
    workspace_bytes: int
    resident_threads: int
    traces: dict[int, _Replayed] = field(default_factory=dict, repr=False)

    def at(self, batch_size: int) -> Trace:
        if batch_size not in self.traces:
            trace = self._with_workspaces(self.source.at(batch_size))
            trace = on_threads(trace, self.resident_threads)
            kept = _Replayed(**{name.name: getattr(trace, name.name) for name in fields(Trace)})
            kept.others = self if isinstance(self.source, BatchRule) else None
            self.traces[batch_size] = kept
        return self.traces[batch_size]

    def _with_workspaces(self, trace: Trace) -> Trace:
        if self.workspace_bytes == self.traced_bytes:
            return trace
        freed = {tensor for kind, tensor in trace.events if kind == FREE}
        sizes = [
            self.workspace_bytes
            if size == self.traced_bytes and category is Category.WORKSPACES and tensor not in freed
            else size
            for tensor, (size, category) in enumerate(
                zip(trace.sizes, trace.categories, strict=True)
            )
        ]
        return replace(trace, sizes=sizes)


class _Replayed(Trace):
    """A trace that keeps its replays: a search needs some of a batch several times.

    Attributes:
        others: Those of other batch sizes, where a rule gives them; ``None`` elsewhere.
    """

    others: TraceSource | None = None

    @cached_property
    def _nearby(self) -> dict[int, Trace | None]:
        return {}

    @cached_property
    def _replays(self) -> dict[tuple[int | None, AllocatorOptions], ReplayResult]:
        return {}

    @cached_property
    def _peak(self) -> tuple[int, dict[str, int]]:
        return super().peak_by_category()

    def replay(
        self, capacity_bytes: int | None = None, options: AllocatorOptions = DEFAULT_OPTIONS
    ) -> ReplayResult:
        key = capacity_bytes, options
        if key not in self._replays:
            self._replays[key] = super().replay(capacity_bytes, options)
        return self._replays[key]

    def peak_by_category(self) -> tuple[int, dict[str, int]]:
        peak, categories = self._peak
        return peak, dict(categories)

    def nearby(self, more: int) -> Trace | None:
        if more not in self._nearby:
            found = super().nearby(more)
            if found is not None and self.others is not None:
                # It is that batch, but for scratch, which mostly is of equal size.
                other = self.others.at(found.batch_size)
                found = other if other.sizes == found.sizes else found
            self._nearby[more] = found
        return self._nearby[more]
