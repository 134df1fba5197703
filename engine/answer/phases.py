"""The phase of a training run that needs the most memory, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.sizes import gib
from ..interface.result import Phase, PhaseName

_THE = {
    PhaseName.STEP: "the training step",
    PhaseName.LATER_STEP: "a later training step",
}
_WHILE = {
    PhaseName.LOADING: "while loading",
    PhaseName.STEP: "in the training step",
    PhaseName.LATER_STEP: "in a later training step",
    PhaseName.EVALUATION: "in evaluation",
    PhaseName.GENERATION: "in generation",
    PhaseName.SAVING: "while saving",
}


def in_phase(name: PhaseName | None) -> str:
    """The words, after a space, for what happens in a phase other than the step; else empty."""
    return "" if name in (None, PhaseName.STEP) else f" {_WHILE[name]}"


def largest_phase(phases: Sequence[Phase]) -> Phase | None:
    """The phase that needs the most of the GPU, the step where others need no more."""
    in_order = sorted(phases, key=lambda phase: phase.name is not PhaseName.STEP)
    return max(in_order, key=lambda phase: phase.peak_device_bytes, default=None)


def most_on_host(phases: Sequence[Phase]) -> Phase | None:
    """The phase that needs the most of the host, over all processes of a node."""
    return max(phases, key=on_a_node, default=None)


def on_a_node(phase: Phase) -> int:
    """Bytes that a phase takes of the host, over all processes of a node."""
    return phase.peak_host_bytes * phase.host_processes


def about_phases(phases: Sequence[Phase], batch_size: int) -> list[str]:
    """The phases that need the most of the GPU and of the host; empty where none are known.

    Args:
        phases: Those of a training run.
        batch_size: Its batch size.
    """
    most, fullest = largest_phase(phases), most_on_host(phases)
    if most is None or fullest is None:
        return []
    name = _THE.get(most.name, most.name)
    return [f"At batch {batch_size:,}, {name} needs the most GPU memory.", _about_host(fullest)]


def _about_host(fullest: Phase) -> str:
    shares = ""
    if fullest.host_processes > 1:
        each, count = gib(fullest.peak_host_bytes), fullest.host_processes
        shares = f", {each} for each of {count} processes on a node (assumed)"
    return (
        f"Host memory: {gib(on_a_node(fullest))} {_WHILE[fullest.name]} ({fullest.source}){shares}."
        " Python, its libraries and data loaders come on top."
    )
