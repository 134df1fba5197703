"""Memory over a step on a CUDA GPU: the allocator's history, labelled by tensors.

PyTorch's caching allocator keeps a history of allocations and frees, by address only
(``torch.cuda.memory._record_memory_history``). A tensor recorder knows what each tensor is for, but
misses what kernels allocate themselves. Together they give a trace like those of predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..allocator.caching import ALLOCATE, FREE
from ..tracing.recorded import Recorded
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import Category, Trace

_ALLOCATED = "alloc"
_FREED = "free_requested"
"""A block counts as allocated until then, even if another stream still holds it
(``free_completed``). The allocator's segments are reserved memory, not tensors."""


@dataclass(frozen=True)
class Sighting:
    """A tensor's storage when a recorder first saw it.

    Attributes:
        tensor: Its id in the recorder's trace.
        address: Address of its first byte.
        position: Number of allocations and frees by then.
    """

    tensor: int
    address: int
    position: int


@dataclass(frozen=True)
class Seen:
    """Observations of a recorder while the allocator kept its history.

    Attributes:
        trace: The recorder's own; categories, modules and operators come from it.
        sightings: Sightings of each storage, in order.
        phases: The position at which each phase began, and its name, in order.
        last_step: The position at which the last step began.
    """

    trace: Trace
    sightings: list[Sighting]
    phases: list[tuple[int, str]]
    last_step: int


def trace_of(history: Iterable[Mapping[str, Any]], seen: Seen) -> Trace:
    """The trace of all allocations, each block labelled by the tensor in it.

    Blocks without a tensor were allocated inside kernels: workspaces.

    Args:
        history: The entries of ``torch.cuda.memory._snapshot()["device_traces"][device]``: mappings
            with an ``action``, an address ``addr`` and the requested ``size`` in bytes.
        seen: By a recorder at the same time.

    Raises:
        ValueError: If the history does not begin before the first allocation.
    """
    trace = Trace(seen.trace.batch_size, phases=list(seen.phases), last_step=seen.last_step)
    trace.operations = seen.trace.operations
    live: dict[int, int] = {}  # address -> block
    waiting = iter(seen.sightings)
    sighting = next(waiting, None)
    for entry in history:
        if entry["action"] == _ALLOCATED:
            live[entry["addr"]] = _allocate(trace, entry["size"])
        elif entry["action"] == _FREED:
            if entry["addr"] not in live:
                raise ValueError("the history lacks the allocation of what it frees")
            trace.events.append((FREE, live.pop(entry["addr"])))
        else:
            continue
        while sighting is not None and sighting.position <= len(trace.events):
            if sighting.address in live:  # otherwise it is on the host
                _label(trace, live[sighting.address], seen.trace, sighting.tensor)
            sighting = next(waiting, None)
    return trace


def _allocate(trace: Trace, size: int) -> int:
    block = len(trace.sizes)
    trace.sizes.append(size)
    trace.categories.append(Category.WORKSPACES)
    trace.modules.append("")
    trace.makers.append("")
    trace.events.append((ALLOCATE, block))
    return block


def _label(trace: Trace, block: int, recorded: Trace, tensor: int) -> None:
    trace.categories[block] = recorded.categories[tensor]
    trace.modules[block] = recorded.modules[tensor]
    trace.makers[block] = recorded.makers[tensor]


class SightingRecorder(MemoryRecorder):
    """Records steps on a device whose allocator keeps a history of its own.

    Args:
        training: The training to record.
        batch_size: Samples per step.
        position: Returns the number of allocations and frees so far.
    """

    def __init__(self, training: Recorded, batch_size: int, position: Callable[[], int]) -> None:
        self._position = position
        self._sightings: list[Sighting] = []
        self._marks: list[tuple[int, str]] = []
        self._begun = 0
        super().__init__(training, batch_size)

    @property
    def seen(self) -> Seen:
        return Seen(self.trace, self._sightings, self._marks, self._begun)

    def begin_step(self) -> None:
        self._begun = self._position()
        super().begin_step()

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note where a phase begins before the operator allocates, then record as usual."""
        self._note_phase()
        return super().handle(func, args, kwargs)

    def _mark_phase(self) -> None:
        self._note_phase()  # a step also frees tensors after its last operator
        super()._mark_phase()

    def _note_phase(self) -> None:
        phase = self._training.phase
        if not self._marks or phase != self._marks[-1][1]:
            self._marks.append((self._position(), phase))

    def _see(self, tensor: torch.Tensor, category: Category, module: str, operator: str) -> None:
        known = len(self.trace.sizes)
        super()._see(tensor, category, module, operator)
        if len(self.trace.sizes) > known:
            address = tensor.untyped_storage().data_ptr()
            self._sightings.append(Sighting(known, address, self._position()))
