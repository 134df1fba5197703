"""A recorder that notes where each tensor lies, and how far the allocator's history had come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from engine.measurement.history import Seen, Sighting
from engine.tracing.recorder import MemoryRecorder, Recorded
from engine.tracing.trace import Category


class SightingRecorder(MemoryRecorder):
    """Records steps on a device whose allocator keeps a history of its own.

    Args:
        training: What is recorded.
        batch_size: Samples per step.
        position: How often the allocator has given or taken back so far.
    """

    def __init__(self, training: Recorded, batch_size: int, position: Callable[[], int]) -> None:
        self._position = position
        self._sightings: list[Sighting] = []
        self._marks: list[tuple[int, str]] = []
        self._begun = 0
        super().__init__(training, batch_size)

    @property
    def seen(self) -> Seen:
        """What was seen so far."""
        return Seen(self.trace, self._sightings, self._marks, self._begun)

    def record_step(self, step: Callable[[], None]) -> None:
        """Run one training step and record it."""
        self._begun = self._position()
        super().record_step(step)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Note where a phase begins, before the operator takes memory, then record as ever."""
        self._note_phase()
        return super().__torch_dispatch__(func, types, args, kwargs)

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
