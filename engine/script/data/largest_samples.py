"""The largest samples of a program's data, so that every traced batch is like the worst one.

Batches of samples that differ in size have their own sizes: no two traces would be alike, and the
worst batch of an epoch would hardly be among those that are traced. So each begins with the samples
that are largest in any dimension, to which the others are padded. Where samples are joined instead,
as graphs are, the others decide: each is a little larger than the mean in every size.
"""

from __future__ import annotations

import copy
import math
import random
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from mimetypes import guess_type
from numbers import Number
from statistics import fmean, pstdev
from typing import Any

import numpy
import torch
from torch.utils.data import BatchSampler
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from ...features.length_distribution import put_first
from ...versions.patches import patched

MAX_READ = 4_096
"""Samples of which the largest are found. Reading them may take a millisecond each."""

MAX_NUMBERS = 2**28
"""Numbers after which no more samples are read: a hundred photographs, or seconds of reading."""

_FIRST = 16
"""Number of first samples that are compared: where all are equally large, so are the others."""

_MIN_SAMPLES, _DEVIATIONS = 32, 3.1
"""The mean of ``_MIN_SAMPLES`` samples or more exceeds their expectation by ``_DEVIATIONS`` of its
standard deviations about once in 1,000 batches (the normal distribution)."""

MAX_DIFFERENT = 32
"""Different samples in a batch that is evaluated where a script is followed. Reading one may take
milliseconds, and test sets are read a thousand at a time."""

_NUMBERED, _NUMBER = re.compile(r"[A-Za-z][\w-]*\d"), re.compile(r"\d+")

Shape = tuple[int, ...]
Shapes = dict[tuple[object, ...], Shape]
"""Shapes of the parts of a sample, each by where it stands in it."""


@dataclass(frozen=True)
class _Chosen:
    """Samples to trace with, by index.

    Attributes:
        largest: In any dimension, the largest one first.
        other: One that stands for all others.
    """

    largest: tuple[int, ...]
    other: int

    def batch(self, batch_size: int) -> list[int]:
        """Indices of ``batch_size`` samples, the largest first."""
        rest = max(batch_size - len(self.largest), 0)
        return [*self.largest[:batch_size], *[self.other] * rest]


class LargestSamples:
    """Puts the largest samples of a data set into every batch of it.

    Attributes:
        caveats: Caveats that an answer has to state.
        different: Samples of a batch that are read; the others are like these. ``None`` for all.
    """

    def __init__(self) -> None:
        self.caveats: list[str] = []
        self.different: int | None = None
        self._chosen: dict[int, _Chosen | None] = {}

    def put_into(self, batch: list[Any], sampler: BatchSampler) -> list[Any]:
        """As large a batch of the largest samples, where samples differ in size."""
        data = getattr(sampler.sampler, "data_source", None)
        if not batch or data is None:
            return batch
        if id(data) not in self._chosen:
            self._chosen[id(data)] = self._choose(data)
        chosen = self._chosen[id(data)]
        return batch if chosen is None else chosen.batch(len(batch))

    def _choose(self, data: Any) -> _Chosen | None:
        read: list[Shapes] = []
        with suppress(Exception):  # code of the user, which says in a step what is wrong
            read = read_samples(data)
        varying = _varying(read)
        if not varying:
            return None
        totals = [_numbers(shapes) for shapes in read]
        largest = {max(range(len(read)), key=sizes.__getitem__) for sizes in varying}
        other = _one_for_others([*varying, totals])
        sizes = max(varying, key=max)
        longest = max(sizes)
        self.caveats.append(
            "Samples differ in size: every traced batch has the largest of the "
            f"{len(read):,} that were read (up to {longest:,} long), so memory and time are those "
            f"of the worst batch. {put_first(sizes.index(longest), f'{longest:,} long')} Where "
            "samples are joined without padding, all count: the others are "
            f"{totals[other] / fmean(totals):.2f} times as large as the mean."
        )
        return _Chosen(tuple(sorted(largest, key=lambda index: -totals[index])), other)


def sample_at(data: Any, index: Any) -> Any:
    """A sample, alike each time it is read: its index decides what is drawn at random for it."""
    _seed(index if isinstance(index, int) and index >= 0 else 0)
    return data[index]


def _seed(number: int) -> None:
    random.seed(number)
    numpy.random.seed(number % 2**32)
    torch.default_generator.manual_seed(number)


def _samples_at(data: Any, indices: Sequence[Any], different: int | None) -> list[Any]:
    """The samples of a batch, of which at most ``different`` are read."""
    if different is None or not all(isinstance(one, Hashable) for one in indices):
        return [sample_at(data, one) for one in indices]
    read = {one: sample_at(data, one) for one in [*dict.fromkeys(indices)][:different]}
    like = list(read.values())
    return [_copied(read.get(one, like[n % len(like)])) for n, one in enumerate(indices)]


def _copied(sample: Any) -> Any:
    """A sample whose containers are its own: collators take keys out of them."""
    if isinstance(sample, Mapping):
        return copy.copy(sample)
    if type(sample) in (list, tuple):
        return type(sample)(map(_copied, sample))
    return sample


@contextmanager
def samples_alike(largest: LargestSamples) -> Iterator[None]:
    """Let loaders read by :func:`sample_at`."""
    fetch: Any = _MapDatasetFetcher.fetch

    def fetched(fetcher: Any, index: Any) -> Any:
        if not fetcher.auto_collation or hasattr(fetcher.dataset, "__getitems__"):
            _seed(0)  # a whole batch, read at once
            return fetch(fetcher, index)
        return fetcher.collate_fn(_samples_at(fetcher.dataset, index, largest.different))

    with patched(
        _MapDatasetFetcher,
        "fetch",
        fetched,
        why="all samples are as large as the largest, and read once",
    ):
        yield


@contextmanager
def own_draws() -> Iterator[None]:
    """Leave the generators of random numbers as they were: a step draws on where it was."""
    python, arrays = random.getstate(), numpy.random.get_state()
    tensors = torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        numpy.random.set_state(arrays)
        torch.default_generator.set_state(tensors)


def read_samples(data: Any) -> list[Shapes]:
    """Shapes of samples from the first on; none if the first are alike."""
    found: list[Shapes] = []
    numbers = 0
    for sample in islice((sample_at(data, index) for index in range(len(data))), MAX_READ):
        found.append(_shapes(sample))
        numbers += _numbers(found[-1])
        if numbers > MAX_NUMBERS:
            break
        if len(found) == _FIRST and not _varying(found):
            return []
    return found


def _varying(read: list[Shapes]) -> list[list[int]]:
    """The sizes of all samples in each dimension in which they differ."""
    parts = {part: len(shape) for shapes in read for part, shape in shapes.items()}
    sizes = [
        [_size(shapes.get(part, ()), dimension) for shapes in read]
        for part, dimensions in parts.items()
        for dimension in range(dimensions)
    ]
    return [one for one in sizes if min(one) < max(one)]


def _one_for_others(sizes: list[list[int]]) -> int:
    """Index of the smallest sample that stands for many joined ones in every size.

    Memory of joined samples goes with one of their sizes, as that of graphs does with nodes or
    edges, so none may be too small. Where each sample is, it is the one that falls least short.

    Args:
        sizes: One list for each size, with that of every sample; the last one decides between
            samples that are large enough.
    """
    enough = [fmean(one) + _DEVIATIONS * pstdev(one) / math.sqrt(_MIN_SAMPLES) for one in sizes]

    def order(index: int) -> tuple[float, int]:
        reached = min(one[index] / least for one, least in zip(sizes, enough, strict=True))
        return max(1 - reached, 0), sizes[-1][index]

    return min(range(len(sizes[-1])), key=order)


def _size(shape: Shape, dimension: int) -> int:
    return shape[dimension] if dimension < len(shape) else 0


def _numbers(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _shapes(sample: Any, place: tuple[object, ...] = ()) -> Shapes:
    """Shapes of tensors, arrays, lists of numbers and texts, also in objects; of others, none.

    The name of an image's file, which data sets return beside it, is no text to learn from.
    """
    if isinstance(sample, torch.Tensor | numpy.ndarray):
        return {place: tuple(sample.shape)}
    if isinstance(sample, str | bytes):
        return {} if _names_a_file(sample) else {place: (_length(sample),)}
    if isinstance(sample, Mapping):
        parts = list(sample.items())
    elif isinstance(sample, list | tuple):
        if all(isinstance(one, Number) for one in sample):
            return {place: (len(sample),)}
        parts = list(enumerate(sample))
    else:
        parts = _attributes(sample)
    return {at: shape for key, part in parts for at, shape in _shapes(part, (*place, key)).items()}


def _length(text: str | bytes) -> int:
    """The length of a text; of a numbered name, such as ``image_12``, whatever its number."""
    if isinstance(text, str) and _NUMBERED.fullmatch(text):
        text = _NUMBER.sub("0", text)
    return len(text)


def _attributes(sample: Any) -> list[tuple[object, Any]]:
    """Parts of an object: all fields of a dataclass, and what holds numbers of any other.

    Texts of others, such as where an image was opened, are hardly there to learn from.
    """
    if isinstance(sample, type | torch.nn.Module):
        return []
    if is_dataclass(sample):
        return [(one.name, getattr(sample, one.name, None)) for one in fields(sample)]
    holding = (torch.Tensor, numpy.ndarray, Mapping)
    parts = getattr(sample, "__dict__", {}).items()
    return [(name, value) for name, value in parts if isinstance(value, holding)]


def _names_a_file(text: str | bytes) -> bool:
    """Whether a text is the name of a file with an image, a sound or a film."""
    if isinstance(text, bytes) or len(text.split()) != 1:
        return False
    kind, _ = guess_type(text)
    return kind is not None and kind.startswith(("image/", "audio/", "video/"))
