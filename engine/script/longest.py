"""The longest sample of a program's data, so that every traced batch is padded as the worst one is.

Batches of samples that differ in length have their own sizes: no two traces would be alike, and the
worst batch of an epoch would hardly be among those that are traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler

MOST_READ = 4_096
"""Samples of which the longest is found. Reading them may take a millisecond each."""

_FIRST = 16
"""Where so many are equally long, so are the others."""

_TOKENS = "input_ids"


class Longest:
    """Puts the longest sample of a data set into every batch of it.

    Attributes:
        caveats: What an answer has to say about it.
    """

    def __init__(self) -> None:
        self.caveats: list[str] = []
        self._found: dict[int, int | None] = {}

    def put_into(self, batch: list[Any], sampler: BatchSampler) -> list[Any]:
        """The batch with the longest sample as its first, where samples differ in length."""
        data = getattr(sampler.sampler, "data_source", None)
        if not batch or data is None:
            return batch
        if id(data) not in self._found:
            self._found[id(data)] = self._find(data)
        longest = self._found[id(data)]
        return batch if longest is None else [longest, *batch[1:]]

    def _find(self, data: Any) -> int | None:
        lengths: list[int] = []
        with suppress(Exception):  # code of the user, which says in a step what is wrong
            lengths = _lengths(data)
        if not lengths or min(lengths) == max(lengths):
            return None
        self.caveats.append(
            f"Samples differ in length: every traced batch has the longest of the {len(lengths):,} "
            f"that were read, {max(lengths):,} tokens, so memory and time are those of the worst "
            "batch."
        )
        return lengths.index(max(lengths))


def _lengths(data: Any) -> list[int]:
    """Tokens of each sample, as far as they are read; empty if they cannot be told."""
    found: list[int] = []
    for sample in islice((data[index] for index in range(len(data))), MOST_READ):
        length = _length(sample)
        if length is None or (len(found) == _FIRST and min(found) == max(found)):
            return []
        found.append(length)
    return found


def _length(sample: Any) -> int | None:
    """Tokens of a sample; ``None`` if it is no text."""
    tokens: Any = sample.get(_TOKENS) if isinstance(sample, Mapping) else sample
    if isinstance(tokens, tuple) and tokens:
        tokens = tokens[0]
    if isinstance(tokens, torch.Tensor):
        return len(tokens) if tokens.dim() == 1 and not tokens.is_floating_point() else None
    is_text = isinstance(tokens, Sequence) and not isinstance(tokens, str)
    return len(tokens) if is_text and isinstance(next(iter(tokens), None), int) else None
