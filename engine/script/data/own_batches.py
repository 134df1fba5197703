"""Batches that a sampler of the script's own chooses, as by a budget of tokens.

They differ in their number of samples and in the length of these, so no two steps would be alike,
and the worst would hardly be among those that are traced. So each traced batch is the largest of an
epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import prod
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import BatchSampler

from .largest_samples import Shapes, read_samples

MAX_BATCHES = 4_096
"""Batches of an epoch among which the largest is looked for."""

_NEAR = 0.97
"""Share of the most numbers from which a batch may be the largest: a budget is never filled to the
end. Of these the one with the longest samples is, as attention may grow with their square."""

USUAL_SIZE = "batch_size"
"""Attribute of PyTorch's samplers that says how many samples a batch has."""
_SIZES = {"batchsize", "trainbatchsize", "batchsz", "batch", "bs", "bsz", "bsize"}
"""Names of the same in samplers of a script's own, without underscores."""

Batch = Sequence[Any]


@dataclass(frozen=True)
class _Epoch:
    """Batches of an epoch.

    Attributes:
        sampler: The sampler that chose them, which lives as long.
        count: Number of batches.
        largest: The largest one.
        differ: Whether they differ in their number of samples, but for the last one.
    """

    sampler: Any
    count: int
    largest: Batch
    differ: bool

    @property
    def said(self) -> str:
        """The largest batch in words; numbers go with the batch size unless batches differ."""
        if not self.differ:
            return "the largest of an epoch"
        return f"the largest of {self.count:,} ({len(self.largest):,} samples)"


class OwnBatches:
    """Finds the largest batch of each sampler that is not one of PyTorch's.

    Attributes:
        caveats: Caveats that an answer has to state.
    """

    def __init__(self) -> None:
        self.caveats: list[str] = []
        self._epochs: dict[int, _Epoch | None] = {}  # by id of the sampler
        self._given: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    @property
    def differ(self) -> bool:
        """Whether batches differ in their number of samples."""
        return any(epoch.differ for epoch in self._epochs.values() if epoch is not None)

    def chosen_by(self, sampler: Any, data: Any) -> _Epoch | None:
        """Batches of an epoch; ``None`` where PyTorch chooses them, or samples have no numbers.

        Args:
            sampler: The sampler.
            data: The data that it chooses from.
        """
        if not chooses_itself(sampler):
            return None
        if id(sampler) not in self._epochs:
            found = _epoch(sampler, data)
            self._epochs[id(sampler)] = found
            if found is not None:
                self.caveats.append(
                    f"{type(sampler).__name__} chooses the samples of a batch: every traced batch "
                    f"is {found.said}, so memory and time are those of the worst one."
                )
        return self._epochs[id(sampler)]

    def next_of(self, epoch: _Epoch, iterator: Any, batches: int) -> list[Any]:
        """The next batch of an iterator.

        Args:
            epoch: Batches that its sampler chose.
            iterator: The iterator that reads.
            batches: Number of batches after which it ends.

        Raises:
            StopIteration: If it has had as many.
        """
        given = self._given.get(iterator, 0)
        if given >= batches:
            raise StopIteration
        self._given[iterator] = given + 1
        return list(epoch.largest)


def chooses_itself(sampler: Any) -> bool:
    """Whether a sampler of batches, or one that it wraps, is not PyTorch's."""
    while (inner := getattr(sampler, "batch_sampler", None)) is not None:
        sampler = inner
    iterates: Any = getattr(type(sampler), "__iter__", None)
    return sampler is not None and iterates is not BatchSampler.__iter__


def size_name(sampler: Any) -> str:
    """Name of the attribute that says how many samples each batch of a sampler has."""
    own = [
        name
        for name, value in getattr(sampler, "__dict__", {}).items()
        if name.replace("_", "").lower() in _SIZES and type(value) is int
    ]
    is_told = isinstance(getattr(sampler, USUAL_SIZE, None), int)
    return USUAL_SIZE if is_told or len(own) != 1 else own[0]


def _epoch(sampler: Any, data: Any) -> _Epoch | None:
    batches = list(islice(iter(sampler), MAX_BATCHES))
    if not batches or not all(map(_is_of_numbers, batches)):
        return None
    read: list[Shapes] = []
    with suppress(Exception):  # code of the user, which says in a step what is wrong
        read = read_samples(data)
    sizes = {len(batch) for batch in (batches[:-1] or batches)}
    numbers = [_numbers(batch, read) for batch in batches]
    near = [number for number in range(len(batches)) if numbers[number] >= _NEAR * max(numbers)]
    fewest = min(near, key=lambda number: len(batches[number]))
    return _Epoch(sampler, len(batches), batches[fewest], len(sizes) > 1)


def _is_of_numbers(batch: Any) -> bool:
    return isinstance(batch, Iterable) and all(isinstance(index, Integral) for index in batch)


def _numbers(batch: Batch, read: list[Shapes]) -> int:
    """Numbers in a batch, each of its samples padded to the longest; its samples, if unknown."""
    if not read:
        return len(batch)
    samples = [read[index] for index in batch if index < len(read)]
    parts = {part for shapes in samples for part in shapes}
    padded = sum(_padded([shapes.get(part, ()) for shapes in samples]) for part in parts)
    return padded * len(batch)


def _padded(shapes: list[tuple[int, ...]]) -> int:
    """Numbers in the smallest shape into which each of these fits."""
    dimensions = max(map(len, shapes))
    filled = [(*shape, *[1] * (dimensions - len(shape))) for shape in shapes]
    return prod(map(max, zip(*filled, strict=True)))
