"""How far the host runs ahead of the GPU, to which it launches the operations of a step.

The host launches one phase after another while the GPU works. Where a step reads a value, asks how
many elements a mask selects, or ends, it waits until the GPU has done all: after that the GPU is
idle until the host has launched more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from ...tracing.trace import RECOMPUTATION, Operation

MICRO_BATCHES_TRACED = 2
"""The most that a trace runs: from the second one on, each is like the one before."""

INPUTS = "inputs"
PASSES = ("forward", "backward", RECOMPUTATION)
"""The phases of a micro-batch; what is recomputed is part of its backward pass."""
PHASES = {"forward": 0, "backward": 1, RECOMPUTATION: 1, "optimizer": 2}
"""The part of a step that the operations of a phase are in."""
UPDATE = 2


def queue_seconds(phases: Iterable[Sequence[tuple[float, float]]]) -> float:
    """Time at which a GPU has finished the phases of a step that its host launches ahead.

    Within a part of a phase, both work at an even pace, so the GPU ends no sooner than its host,
    and no sooner than its own work takes from when it could begin. A host that is ahead after one
    phase stays ahead in the next; between two parts of a phase it waits.

    Args:
        phases: For each part of each phase, the times for which it keeps the host and the GPU
            busy, in seconds.
    """
    host = gpu = 0.0
    for parts in phases:
        for number, (launching, computing) in enumerate(parts):
            if number:
                host = max(host, gpu)
            gpu = max(max(gpu, host) + computing, host + launching)
            host += launching
    return gpu


def runs(operations: Sequence[Operation], micro_batches: int) -> Iterator[int]:
    """Runs of each operation of a trace in a step with that many micro-batches.

    The first micro-batch creates the gradients and later ones add to them, so only the last traced
    one is repeated.
    """
    traced = min(micro_batches, MICRO_BATCHES_TRACED)
    for operation, last in zip(operations, _of_last(operations, traced), strict=True):
        repeated = last and operation.phase in (INPUTS, *PASSES)
        yield micro_batches - traced + 1 if repeated else 1


def places(operations: Sequence[Operation], micro_batches: int) -> Iterator[int]:
    """The part of its phase that each operation of a trace is in, counted in its micro-batch.

    Waiting outside the phases, as for the next batch, divides none.
    """
    traced = min(micro_batches, MICRO_BATCHES_TRACED)
    waits = [0] * len(set(PHASES.values()))
    before = False
    for operation, last in zip(operations, _of_last(operations, traced), strict=True):
        if last and not before:
            waits = [0] * len(waits)
        before = last
        phase = PHASES.get(operation.phase)
        if phase is None:
            yield 0
            continue
        waits[phase] += operation.waits
        yield waits[phase]


def _of_last(operations: Sequence[Operation], traced: int) -> Iterator[bool]:
    """Whether each operation is of the last micro-batch of a trace of that many, or after it.

    A micro-batch begins where its inputs are copied to the device; where none are, with its forward
    pass. It may do so more than once, as where one model trains against another.
    """
    copies = any(operation.phase == INPUTS for operation in operations)
    begins = INPUTS if copies else PASSES[0]
    phases = ["", *(operation.phase for operation in operations)]
    begun = list(accumulate(phase == begins != before for before, phase in pairwise(phases)))
    earlier = begun[-1] * (traced - 1) // traced if begun else 0
    return (count > earlier for count in begun)
