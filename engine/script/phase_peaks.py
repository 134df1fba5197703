"""Peaks of memory in each phase of a script that was followed, at one batch size."""

from __future__ import annotations

from dataclasses import dataclass

from ..interface.result import PhaseName


@dataclass(frozen=True)
class Peak:
    """Most bytes of tensors in a phase.

    Attributes:
        device: On the GPU.
        host: On the host.
    """

    device: int
    host: int

    def __or__(self, other: Peak) -> Peak:
        return Peak(max(self.device, other.device), max(self.host, other.host))


@dataclass(frozen=True)
class Saved:
    """Bytes on the host beside :attr:`Peak.host` while a checkpoint is written.

    Attributes:
        by: The function that saves.
        file: Bytes of the weights of a file that is put together on the host; 0 if none is.
        largest: Bytes of the largest tensor that is copied to the host.
    """

    by: str
    file: int
    largest: int


@dataclass(frozen=True)
class WholeRun:
    """Phases of a program, at one batch size.

    Attributes:
        batch_size: Samples per step.
        peaks: Peaks by phase: loading, the training step, and what it came to after it. The step
            of later epochs is among them wherever there was one.
        saved: The checkpoint that needs the most of the host; ``None`` if it saved none.
        batches: Batches of the longest evaluation; ``None`` where they cannot be counted.
        grows: Whether each of them keeps something, so that the peak is that of the last one.
        left: Reason why it was not followed further, in a clause; empty if it came to its end.
    """

    batch_size: int
    peaks: dict[PhaseName, Peak]
    saved: Saved | None = None
    batches: int | None = None
    grows: bool = False
    left: str = ""
