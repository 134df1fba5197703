"""From a data sample to the sizes in it: text files, JSON lines, CSV columns, images.

Everything is read as a stream and nothing is kept but counts of sizes, so memory stays small
whatever the file holds. Images are opened for their headers only.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from engine.errors import InvalidInput
from engine.models.kinds import SizeLimits
from engine.parsing import shown
from engine.result import Source
from engine.samples.images import IMAGE_SUFFIXES, image_sizes
from engine.samples.sizes import Counts, Spread, above, spread
from engine.samples.texts import Texts
from engine.samples.tokens import CHARACTERS_PER_TOKEN, characters_as_tokens, tokens

MOST_SAMPLES = 1_000_000
"""No more samples than this are read; what is true of a million is true of the rest."""

TOKENS, WIDTH, HEIGHT, SIDE = "tokens", "width", "height", "longer side"

LIMIT_OF = {"text": "sequence_length", "image": "image_size"}
"""The field of a workload that a kind of sample decides."""

_Size = TypeVar("_Size", int, tuple[int, int])


@dataclass(frozen=True)
class DataSample:
    """The sizes found in a data sample.

    Attributes:
        kind: ``text`` or ``image``.
        counts: How many samples there are of each size, by dimension: ``tokens`` of a text;
            ``width``, ``height`` and ``longer side`` of an image, in pixels.
        source: ``measured``, or ``assumed`` where tokens were not counted but derived from
            characters.
        notes: What a reader has to know, one sentence each.
    """

    kind: str
    counts: Mapping[str, Counts]
    source: Source
    notes: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many samples were read."""
        return sum(next(iter(self.counts.values())).values())

    @property
    def sizes(self) -> Counts:
        """The sizes that decide the input size of a workload."""
        return self.counts[TOKENS if self.kind == "text" else SIDE]

    def spreads(self, percent: float) -> dict[str, Spread]:
        """The spread of each dimension at a percentile."""
        return {name: spread(counts, percent) for name, counts in self.counts.items()}


@dataclass(frozen=True)
class InputSize:
    """The input size of a workload that a data sample asks for.

    Attributes:
        size: In tokens, or pixels per side.
        note: Where it comes from and what it cuts, in a sentence.
    """

    size: int
    note: str


def read_sample(path: Path, column: str | None = None, tokenizer: Path | None = None) -> DataSample:
    """Read a data sample.

    Args:
        path: A text file with a sample in each line; JSON lines (``.jsonl``, ``.ndjson``) or a
            table (``.csv``, ``.tsv``) with the text in a column; a folder or a ``.zip`` of images.
        column: The key or the column that holds the text; only for JSON lines and tables.
        tokenizer: A ``tokenizer.json`` to count tokens with; without it they are assumed from
            characters.

    Raises:
        InvalidInput: For ``sample``, ``sample_field`` or ``tokenizer``: what is wrong with it.
    """
    if not os.access(path, os.R_OK) or not (path.is_file() or path.is_dir()):
        raise _wrong_sample(f"{shown(path)} is no file or folder that can be read")
    if path.is_dir() or path.suffix.lower() in (".zip", *IMAGE_SUFFIXES):
        if column is not None or tokenizer is not None:
            name = "sample_field" if column is not None else "tokenizer"
            raise InvalidInput({name: "images have none; leave it out"})
        return _images(path)
    return _texts(Texts(path, column), tokenizer)


def input_size(sample: DataSample, percent: float, limits: SizeLimits) -> InputSize:
    """The input size at a percentile of a sample, within what a model takes.

    Args:
        sample: Of the kind the model takes.
        percent: Of samples that are not to be cut (texts) or scaled down (images).
        limits: The model's.
    """
    wanted = spread(sample.sizes, percent).padded
    size = min(max(wanted, limits.smallest), limits.largest)
    larger = above(sample.sizes, size)
    text = sample.kind == "text"
    what = "tokens" if text else "pixels on the longer side"
    note = f"{percent:g} % of {sample.count:,} samples have at most {wanted:,} {what}"
    note += f" ({sample.source}), padded to a multiple of 8"
    if size != wanted:
        bound = f"at most {size:,}" if size < wanted else f"at least {size:,}"
        note += f"; the model takes {bound}"
    if larger:
        share = 100 * larger / sample.count
        fate = "cut" if text else "scaled down"
        are = "is" if larger == 1 else "are"
        note += f"; {larger:,} ({share:.3g} %) {are} larger and {are} {fate} to {size:,}"
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
        message = f"{shown(value)} is not possible here; give a number above 0, up to 100"
        raise InvalidInput({"percentile": message})
    return percent


def _texts(texts: Texts, tokenizer: Path | None) -> DataSample:
    lengths = characters_as_tokens(texts) if tokenizer is None else tokens(texts, tokenizer)
    counts, complete = _count(lengths)
    if not counts:
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
    return DataSample("text", {TOKENS: counts}, source, notes)


def _images(path: Path) -> DataSample:
    sizes, complete = _count(image_sizes(path))
    if not sizes:
        raise _wrong_sample(f"there are no images in it ({', '.join(sorted(IMAGE_SUFFIXES))})")
    counts = {name: Counter[int]() for name in (WIDTH, HEIGHT, SIDE)}
    for (width, height), count in sizes.items():
        for name, pixels in ((WIDTH, width), (HEIGHT, height), (SIDE, max(width, height))):
            counts[name][pixels] += count
    notes = [] if complete else [f"Only the first {sum(sizes.values()):,} images were read."]
    return DataSample("image", dict(counts), Source.MEASURED, notes)


def _count(sizes: Iterable[_Size]) -> tuple[Counter[_Size], bool]:
    """How many there are of each size, and whether that is all of them."""
    rest = iter(sizes)
    counts = Counter(islice(rest, MOST_SAMPLES))
    return counts, next(rest, None) is None


def _wrong_sample(message: str) -> InvalidInput:
    return InvalidInput({"sample": message})
