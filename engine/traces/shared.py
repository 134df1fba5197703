"""Traces of one workload that GPUs share where they are traced alike, in memory and on disk."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from ..interface.workload import Workload
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Trace
from .batch_rule import LOW, BatchRule
from .families import Family, RecordingBehaviour
from .shallow_models import ShallowModels
from .source import Kept, TraceSource
from .trace_files import TraceFiles
from .tracer import WholeModel


@dataclass(frozen=True)
class CachedOnDisk:
    """The traces of one workload on disk, for several kinds of GPU.

    Attributes:
        workload: The one that is traced.
        files: The trace files.
        warn: Receives a sentence where a file cannot be read or written.
    """

    workload: Workload = field(repr=False)
    files: TraceFiles
    warn: Callable[[str], object] = field(repr=False)

    def load(self, behaviour: CudaBehaviour) -> list[Family]:
        """The saved families; ``behaviour`` is for what may have to be traced besides."""
        families = []
        for lookups, rule, workspace_bytes in self.files.load(self.workload, self.warn) or ():
            recording = cast(CudaBehaviour, RecordingBehaviour(behaviour, lookups))
            rule.each = ShallowModels(WholeModel(self.workload, recording), rule.margin)
            families.append(Family(lookups, rule, workspace_bytes))
        return families

    def traced_once(self, behaviour: CudaBehaviour) -> AbstractContextManager[bool]:
        """:meth:`TraceFiles.held` by the process that traces this workload for such a GPU.

        Another kind of GPU may be traced meanwhile, as it most likely is traced otherwise.
        """
        return self.files.held(self.workload, f"traced {behaviour.compute_capability}")

    def save(self, family: Family) -> None:
        """Save traces beside those for other kinds of GPU."""
        with self.files.held(self.workload, "saved"):
            saved = self.files.load(self.workload, self.warn) or []
            # Those for the same kind of GPU had fewer look-ups, or as many.
            others = [one for one in saved if not one[0].items() <= family.lookups.items()]
            traces = [*others, (family.lookups, family.source, family.workspace_bytes)]
            self.files.save(self.workload, traces, self.warn)


class GpuKind(NamedTuple):
    """A kind of GPU, as far as the traces of a workload go.

    Attributes:
        is_traced: Whether its traces are at hand.
        decisions: What is equal for GPUs that are traced alike.
    """

    is_traced: bool
    decisions: Hashable


class SharedTraces:
    """Traces of one workload, shared by all GPUs that are traced alike.

    What a trace depends on is what it looked up in the GPU's behaviour. So each trace records its
    look-ups, and a GPU for which they all give the same result shares it.

    Args:
        trace_every: Traces the workload at every batch size, given a GPU's behaviour, and the
            :attr:`BatchRule.margin` of another GPU; ``None`` where none was traced.
        on_disk: Traces of the workload on disk; ``None`` to keep none there.

    Attributes:
        on_disk: As given.
        families: The GPUs that were traced or found on disk.
    """

    def __init__(
        self,
        trace_every: Callable[[CudaBehaviour, int | None], TraceSource],
        on_disk: CachedOnDisk | None = None,
    ) -> None:
        self._trace_every = trace_every
        self.on_disk = on_disk
        self.families: list[Family] = []
        self._saved_margin: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.families!r}, on_disk={self.on_disk!r})"

    def of(self, behaviour: CudaBehaviour) -> TraceSource:
        """The traces for a GPU's behaviour; what every batch size needs is traced at once."""
        self.at(LOW, behaviour)
        return Kept(OnGpu(self, behaviour))

    def kind_of(self, behaviour: CudaBehaviour) -> GpuKind:
        """The kind of a GPU.

        The look-ups of the first traces tell it: most of them are made for every GPU.
        """
        if not self.families:
            return GpuKind(False, behaviour.compute_capability)
        decisions = repr(self.families[0].decisions_of(behaviour))
        return GpuKind(any(one.includes(behaviour) for one in self.families), decisions)

    def at(self, batch_size: int, behaviour: CudaBehaviour) -> Trace:
        """The trace at a batch size for a GPU's behaviour: shared, found on disk, or made."""
        trace = self._found(batch_size, behaviour)
        if trace is not None:
            return trace
        if self.on_disk is None:
            return self._made(batch_size, behaviour)
        with self.on_disk.traced_once(behaviour) as waited:
            trace = self._found(batch_size, behaviour) if waited else None
            return self._made(batch_size, behaviour) if trace is None else trace

    def _found(self, batch_size: int, behaviour: CudaBehaviour) -> Trace | None:
        trace = self._known(behaviour, batch_size, self.families)
        if trace is None and self.on_disk is not None:
            saved = self.on_disk.load(behaviour)
            trace = self._known(behaviour, batch_size, saved)
            self.families += [one for one in saved if not self._has(one)]
            self._saved_margin = _margin_of(saved)
        return trace

    def _has(self, saved: Family) -> bool:
        """Whether traces for the same kind of GPU are in memory, with as many look-ups."""
        return any(saved.lookups.items() <= one.lookups.items() for one in self.families)

    def _made(self, batch_size: int, behaviour: CudaBehaviour) -> Trace:
        recording = RecordingBehaviour(behaviour)
        margin = _margin_of(self.families) or self._saved_margin
        source = self._trace_every(cast(CudaBehaviour, recording), margin)
        family = Family(recording.lookups, source, behaviour.cublas_workspace_bytes)
        self.families.append(family)
        trace = family.on(behaviour).at(batch_size)
        self._keep(family)
        return trace

    def _known(
        self, behaviour: CudaBehaviour, batch_size: int, families: Iterable[Family]
    ) -> Trace | None:
        for family in families:
            if not family.includes(behaviour):
                continue
            before = family.count
            trace = family.on(behaviour).at(batch_size)
            if family.count > before:
                self._keep(family)
            # A batch size with a trace of its own, such as 1, may add look-ups that differ.
            if family.includes(behaviour):
                return trace
        return None

    def _keep(self, family: Family) -> None:
        if self.on_disk is not None and isinstance(family.source, BatchRule):
            self.on_disk.save(family)


def _margin_of(families: Iterable[Family]) -> int | None:
    """The margin of the shallow models that gave their traces; ``None`` where none did."""
    rules = [one.source for one in families if isinstance(one.source, BatchRule)]
    return next((rule.margin for rule in rules if rule.margin), None)


@dataclass(eq=False)
class OnGpu:
    """The traces of a workload on one of the GPUs that share them.

    Attributes:
        shared: The traces on all of them.
        behaviour: The behaviour of the one.
    """

    shared: SharedTraces
    behaviour: CudaBehaviour

    def at(self, batch_size: int) -> Trace:
        return self.shared.at(batch_size, self.behaviour)
