"""Data that are evaluated: each batch of them is read once, as no pass with gradients follows.

While a script is traced or measured, loaders give more batches than there are data, so that there
are enough steps. An evaluation would read as many, and what it keeps of each would count too often.
"""

from __future__ import annotations

import weakref
from typing import Any


class EvaluatedData:
    """Tells data that are evaluated from those that feed steps, by the passes that follow."""

    def __init__(self) -> None:
        self._learning: weakref.WeakSet[Any] = weakref.WeakSet()  # iterators that feed steps
        self._samplers: dict[int, Any] = {}  # of these, by id, as one may be a list
        # Batches read of each other iterator, which no pass with gradients has come after.
        self._read: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._looked_at: weakref.WeakSet[Any] = weakref.WeakSet()  # by a pass without gradients

    def forward(self, *, learns: bool) -> None:
        """A forward pass begins, with gradients or without."""
        if not learns:
            self._looked_at.update(self._read)
            return
        for iterator in self._read:
            self._learning.add(iterator)
            sampler = iterator._index_sampler
            self._samplers[id(sampler)] = sampler
        self._read.clear()

    def before_read(self, iterator: Any) -> None:
        """A batch is wanted; raises ``StopIteration`` where all data have been evaluated."""
        if iterator in self._learning:
            return
        read, of_all = self.read_of(iterator), batches_of(iterator._index_sampler)
        if of_all is not None and 0 < of_all <= read and iterator in self._looked_at:
            del self._read[iterator]
            raise StopIteration
        self._read[iterator] = read + 1

    def read_of(self, iterator: Any) -> int:
        """Batches that have been read for an evaluation; 0 of what feeds steps."""
        return self._read.get(iterator, 0)

    def ends_with_its_data(self, sampler: Any) -> bool:
        """Whether other data feed the steps than what a sampler chooses."""
        return bool(self._samplers) and id(sampler) not in self._samplers


def batches_of(sampler: Any) -> int | None:
    """Batches of all data that a sampler chooses; ``None`` where these have no length."""
    try:
        samples, size = len(sampler.sampler), sampler.batch_size
    except (AttributeError, TypeError, NotImplementedError):
        return None
    if not isinstance(size, int) or not size:
        return None
    return samples // size if getattr(sampler, "drop_last", False) else -(-samples // size)
