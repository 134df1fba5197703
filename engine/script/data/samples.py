"""Data samples: which input size a model needs for the user's texts or images.

Files are read as streams and only counts of sizes are kept, so memory stays small however large the
file. :mod:`engine.script.data.sample_files` does the reading. It stands with the models because a
model's limits decide what an input size may be.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ...core.errors import InvalidInput
from ...core.parsing import shown
from ...features.length_distribution import put_first
from ...interface.trial import Source
from ...models.tasks import SizeLimits
from .sample_files import (
    CHARACTERS_PER_TOKEN,
    IMAGE_SUFFIXES,
    Texts,
    characters_as_tokens,
    image_sizes,
    tokens,
)

MAX_SAMPLES = 1_000_000
"""No more samples than this are read; a million represent the rest."""

TOKENS, WIDTH, HEIGHT, SIDE = "tokens", "width", "height", "longer side"

LIMIT_OF = {"text": "sequence_length", "image": "image_size"}
"""The workload field that each kind of sample determines."""

_Size = TypeVar("_Size", int, tuple[int, int])


@dataclass(frozen=True)
class Longest:
    """The sample of which a step needs most; the first of those that are equally long.

    Attributes:
        index: Its place among the samples that were read, from 0.
        size: In tokens, or pixels on the longer side.
    """

    index: int
    size: int


@dataclass(frozen=True)
class DataSample:
    """The sizes found in a data sample.

    Attributes:
        kind: ``text`` or ``image``.
        counts: Number of samples of each size, by dimension: ``tokens`` of a text; ``width``,
            ``height`` and ``longer side`` of an image, in pixels.
        source: ``measured``, or ``assumed`` where tokens were estimated from characters.
        longest: The longest sample.
        notes: Caveats, one sentence each.
    """

    kind: str
    counts: Mapping[str, Counts]
    source: Source
    longest: Longest
    notes: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of samples that were read."""
        return sum(next(iter(self.counts.values())).values())

    @property
    def sizes(self) -> Counts:
        """The sizes that determine the workload's input size."""
        return self.counts[TOKENS if self.kind == "text" else SIDE]

    @property
    def first_to_try(self) -> str:
        """The sentence that says which sample is the longest, and what to do with it."""
        unit = "tokens" if self.kind == "text" else "pixels on the longer side"
        return put_first(self.longest.index, f"{self.longest.size:,} {unit}, {self.source}")

    def spreads(self, percent: float) -> dict[str, Spread]:
        """The spread of each dimension at a percentile."""
        return {name: spread(counts, percent) for name, counts in self.counts.items()}


@dataclass(frozen=True)
class InputSize:
    """The input size that a data sample leads to.

    Attributes:
        size: In tokens, or pixels per side.
        note: One sentence: where it comes from, and what it cuts.
    """

    size: int
    note: str


def read_sample(path: Path, column: str | None = None, tokenizer: Path | None = None) -> DataSample:
    """Read a data sample.

    Args:
        path: A text file with one sample per line; JSON lines (``.jsonl``, ``.ndjson``) or a table
            (``.csv``, ``.tsv``) with the text in one column; a folder or a ``.zip`` of images.
        column: The key or column that holds the text; only for JSON lines and tables.
        tokenizer: A ``tokenizer.json`` to count tokens with; without it they are estimated from
            characters.

    Raises:
        InvalidInput: For ``sample``, ``sample_field`` or ``tokenizer``.
    """
    if not os.access(path, os.R_OK) or not (path.is_file() or path.is_dir()):
        raise _wrong_sample(f"{shown(path)} is not a file or folder that can be read")
    if path.is_dir() or path.suffix.lower() in (".zip", *IMAGE_SUFFIXES):
        if column is not None or tokenizer is not None:
            name = "sample_field" if column is not None else "tokenizer"
            raise InvalidInput({name: "images have none; leave it out"})
        return _images(path)
    return _texts(Texts(path, column), tokenizer)


def input_size(sample: DataSample, percent: float, limits: SizeLimits) -> InputSize:
    """The input size at a percentile of a sample, within the model's limits.

    Args:
        sample: A sample of the kind that the model takes.
        percent: Share of samples that must not be cut (texts) or scaled down (images).
        limits: The model's limits.
    """
    wanted = spread(sample.sizes, percent).padded
    size = min(max(wanted, limits.smallest), limits.largest)
    larger = above(sample.sizes, size)
    text = sample.kind == "text"
    what = "tokens" if text else "pixels on the longer side"
    note = f"{percent:g}% of {sample.count:,} samples have at most {wanted:,} {what}"
    note += f" ({sample.source}), padded to a multiple of 8"
    if size != wanted:
        bound = f"at most {size:,}" if size < wanted else f"at least {size:,}"
        note += f"; the model takes {bound}"
    if larger:
        share = 100 * larger / sample.count
        fate = "cut" if text else "scaled down"
        are = "is" if larger == 1 else "are"
        note += f"; {larger:,} ({share:.3g}%) {are} larger and {are} {fate} to {size:,}"
    return InputSize(size, f"{note}.")


def percentage(value: object) -> float:
    """A percentile from untrusted input.

    Raises:
        InvalidInput: For ``percentile``.
    """
    try:
        percent = float(str(value))
    except ValueError:
        percent = math.nan
    if not 0 < percent <= 100:
        message = f"enter a number above 0, up to 100, instead of {shown(value)}"
        raise InvalidInput({"percentile": message})
    return percent


def _texts(texts: Texts, tokenizer: Path | None) -> DataSample:
    lengths = characters_as_tokens(texts) if tokenizer is None else tokens(texts, tokenizer)
    counts, longest, complete = _count(lengths, lambda length: length)
    if longest is None:
        raise _wrong_sample("there is no text in it")
    notes = []
    if not (complete and texts.complete):
        notes.append(f"Only the first {sum(counts.values()):,} samples were read.")
    source = Source.MEASURED
    if tokenizer is None and texts.untokenized:
        source = Source.ASSUMED
        notes.append(
            f"Tokens are assumed at {CHARACTERS_PER_TOKEN} characters each, as in English text; "
            "a tokenizer.json counts them."
        )
    return DataSample("text", {TOKENS: counts}, source, longest, notes)


def _images(path: Path) -> DataSample:
    sizes, longest, complete = _count(image_sizes(path), max)
    if longest is None:
        raise _wrong_sample(f"there are no images in it ({', '.join(sorted(IMAGE_SUFFIXES))})")
    counts = {name: Counter[int]() for name in (WIDTH, HEIGHT, SIDE)}
    for (width, height), count in sizes.items():
        for name, pixels in ((WIDTH, width), (HEIGHT, height), (SIDE, max(width, height))):
            counts[name][pixels] += count
    notes = [] if complete else [f"Only the first {sum(sizes.values()):,} images were read."]
    return DataSample("image", dict(counts), Source.MEASURED, longest, notes)


def _count(
    sizes: Iterable[_Size], length: Callable[[_Size], int]
) -> tuple[Counter[_Size], Longest | None, bool]:
    """Number of samples of each size, the longest of them, and whether all were read.

    Args:
        sizes: Size of each sample, in turn.
        length: The length of a sample of some size.
    """
    rest = iter(sizes)
    counts = Counter[_Size]()
    longest: Longest | None = None
    for index, size in enumerate(islice(rest, MAX_SAMPLES)):
        # Few sizes are new, so that few lengths are compared.
        if not counts[size] and (longest is None or length(size) > longest.size):
            longest = Longest(index, length(size))
        counts[size] += 1
    return counts, longest, next(rest, None) is None


def _wrong_sample(message: str) -> InvalidInput:
    return InvalidInput({"sample": message})


MULTIPLE = 8
"""Sizes are padded to a multiple of it: tensor cores want dimensions that are multiples of 8 in
half precision (NVIDIA, Deep Learning Performance Guide, "Tensor Core Requirements"), and collators
commonly pad so (``pad_to_multiple_of=8``)."""

Counts = Mapping[int, int]
"""Number of samples of each size."""


@dataclass(frozen=True)
class Spread:
    """The sizes of a data sample along one dimension, in tokens or pixels.

    Attributes:
        smallest, median, largest: Sizes of the samples.
        at_percentile: The size that the chosen share of samples does not exceed.
        padded: That size, padded to a multiple of 8.
        worst: The largest size, padded likewise.
    """

    smallest: int
    median: int
    largest: int
    at_percentile: int
    padded: int
    worst: int


def spread(counts: Counts, percent: float) -> Spread:
    """The spread of sizes.

    Args:
        counts: At least one sample.
        percent: Above 0, up to 100.
    """
    at_percentile = percentile(counts, percent)
    largest = max(counts)
    return Spread(
        smallest=min(counts),
        median=percentile(counts, 50),
        largest=largest,
        at_percentile=at_percentile,
        padded=padded(at_percentile),
        worst=padded(largest),
    )


def percentile(counts: Counts, percent: float) -> int:
    """The smallest size that at least ``percent``% of the samples do not exceed (nearest rank).

    Args:
        counts: At least one sample.
        percent: Above 0, up to 100.

    Raises:
        ValueError: If there are no samples, or the percentage is out of bounds.
    """
    if not 0 < percent <= 100:
        raise ValueError(f"a percentage lies above 0 and up to 100: {percent}")
    total = sum(counts.values())
    if total == 0:
        raise ValueError("there are no samples")
    # Rounded, since floating-point error could otherwise require one sample more.
    needed = max(1, math.ceil(round(total * percent / 100, 9)))
    seen = 0
    for size in sorted(counts):
        seen += counts[size]
        if seen >= needed:
            break
    return size


def padded(size: int, multiple: int = MULTIPLE) -> int:
    """A size rounded up to a multiple; at least one multiple."""
    return max(1, -(-size // multiple)) * multiple


def above(counts: Counts, size: int) -> int:
    """Number of samples that are larger than a size."""
    return sum(count for found, count in counts.items() if found > size)
