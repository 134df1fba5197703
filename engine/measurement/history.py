"""Where memory went along a step on a CUDA GPU: the allocator's history, told by what tensors were.

PyTorch's caching allocator keeps a history of what it gave and took back, by address alone
(``torch.cuda.memory._record_memory_history``). A recorder of tensors knows what each is for, and
misses what kernels take inside. Together they give such a trace as a prediction is made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.allocator.caching import ALLOCATE, FREE
from engine.tracing.trace import Category, Trace

_GIVEN = "alloc"
_TAKEN_BACK = "free_requested"
"""A block counts as allocated until then, even where another stream still holds it
(``free_completed``); the allocator's segments are reserved memory and no tensors."""


@dataclass(frozen=True)
class Sighting:
    """A tensor's storage as a recorder saw it first.

    Attributes:
        tensor: Its id in the recorder's trace.
        address: Of its first byte.
        position: How often the allocator had given or taken back by then.
    """

    tensor: int
    address: int
    position: int


@dataclass(frozen=True)
class Seen:
    """What a recorder saw while the allocator wrote its history.

    Attributes:
        trace: What the recorder wrote itself; categories, modules and operators are taken from it.
        sightings: Of each storage, in order.
        phases: At which position each phase of the steps began, and its name, in order.
        last_step: At which position the last step began.
    """

    trace: Trace
    sightings: list[Sighting]
    phases: list[tuple[int, str]]
    last_step: int


def trace_of(history: Iterable[Mapping[str, Any]], seen: Seen) -> Trace:
    """The trace of everything the allocator gave, each block told by the tensor that lay in it.

    What no tensor accounts for was taken inside kernels: workspaces.

    Args:
        history: The entries of ``torch.cuda.memory._snapshot()["device_traces"][device]``: mappings
            with an ``action``, an address ``addr`` and a ``size`` in bytes, as it was asked for.
        seen: By the recorder.

    Raises:
        ValueError: If the history does not begin before the first allocation.
    """
    trace = Trace(seen.trace.batch_size, phases=list(seen.phases), last_step=seen.last_step)
    trace.operations = seen.trace.operations
    live: dict[int, int] = {}  # address -> block
    waiting = iter(seen.sightings)
    sighting = next(waiting, None)
    for entry in history:
        if entry["action"] == _GIVEN:
            live[entry["addr"]] = _give(trace, entry["size"])
        elif entry["action"] == _TAKEN_BACK:
            if entry["addr"] not in live:
                raise ValueError("the history lacks the allocation of what is freed in it")
            trace.events.append((FREE, live.pop(entry["addr"])))
        else:
            continue
        while sighting is not None and sighting.position <= len(trace.events):
            if sighting.address in live:  # else it lies on the host
                _tell(trace, live[sighting.address], seen.trace, sighting.tensor)
            sighting = next(waiting, None)
    return trace


def _give(trace: Trace, size: int) -> int:
    block = len(trace.sizes)
    trace.sizes.append(size)
    trace.categories.append(Category.WORKSPACES)
    trace.modules.append("")
    trace.makers.append("")
    trace.events.append((ALLOCATE, block))
    return block


def _tell(trace: Trace, block: int, recorded: Trace, tensor: int) -> None:
    trace.categories[block] = recorded.categories[tensor]
    trace.modules[block] = recorded.modules[tensor]
    trace.makers[block] = recorded.makers[tensor]
