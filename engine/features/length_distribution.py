"""Lengths of samples: a distribution, from a few percentiles, and what batches make of it.

Samples are taken to be drawn independently. Between two percentiles the length rises evenly, so all
that is expected here is exact: sums over straight pieces, no simulation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..core.errors import InvalidInput
from ..core.parsing import shown
from ..models.tasks import MAX_SEQUENCE_LENGTH

EXAMPLE = "p50=310,p90=900,p99=2100,max=4096"
FIELD = "sample_lengths"
"""The field of a workload that is read here."""

MAX_LIST_CHARACTERS = 2**20

MEGA_BATCH = 50
"""Batches that transformers' ``group_by_length`` sorts at once (``get_length_grouped_indices``)."""

_DRAWS = 2**16
_MAX_GRID = 2**20

_POINT = re.compile(r"(min|max|p([0-9]{1,2}(?:\.[0-9]{1,4})?))=([0-9]{1,7})", re.ASCII)
_INDEX = re.compile(r"(max=[0-9]{1,7})@([0-9]{1,9})", re.ASCII)
"""The longest sample, with its index in the list that it comes from."""
_SHOWN = 40
"""Characters of a mistake that are shown of what may be a file."""
_LENGTH = re.compile(r"[0-9]{1,7}", re.ASCII)
_LIST = re.compile(r"\s*[0-9]+[\s,]+[^\s,]", re.ASCII)
_SUMMED = (*range(5, 100, 5), 1, 98, 99, 99.5, 99.9, 99.99)
"""The percentiles that stand for a file of lengths, beside its shortest and its longest."""


@dataclass(frozen=True)
class Lengths:
    """The lengths of samples, in tokens.

    Attributes:
        points: Shares of all samples, from 0 to 1, each with the length that this share does not
            exceed.
        longest_at: Index of the first of the longest samples, from 0; ``None`` if not known.
    """

    points: tuple[tuple[float, float], ...]
    longest_at: int | None = None

    @classmethod
    def parse(cls, text: object) -> Lengths:
        """Lengths from percentiles such as :data:`EXAMPLE`, or from a list of them all.

        Of percentiles, the shortest is 1 unless ``min`` says. In a list, lines, spaces or commas
        stand between lengths.

        Args:
            text: Untrusted.

        Raises:
            InvalidInput: With what to write instead.
        """
        if not isinstance(text, str):
            raise _wrong("lengths are text")
        if _LIST.match(text):
            return cls.of(_listed(text))
        points, index = {0.0: 1.0}, None
        for part in text.lower().split(","):
            written = "".join(part.split())
            if at := _INDEX.fullmatch(written):
                written, index = at[1], int(at[2])
            found = _POINT.fullmatch(written)
            if found is None:
                seen = "".join(filter(str.isprintable, part)).strip()[:_SHOWN]
                raise _wrong(f"{seen or 'nothing'} is not a percentile")
            name, percent, tokens = found.groups()
            points[float(percent or 100 * (name == "max")) / 100] = float(tokens)
        if 1.0 not in points:
            raise _wrong("the longest is missing: add max")
        rising = sorted(points.items())
        lengths = [length for _, length in rising]
        if not 1 <= min(lengths) <= max(lengths) <= MAX_SEQUENCE_LENGTH:
            raise _wrong(f"lengths are from 1 to {MAX_SEQUENCE_LENGTH:,} tokens")
        if lengths != sorted(lengths):
            raise _wrong("a higher percentile is shorter than a lower one")
        return cls(tuple(rising), index)

    @classmethod
    def of(cls, counted: Iterable[int]) -> Lengths:
        """The lengths of a list of samples, by their percentiles.

        Raises:
            InvalidInput: If there are none.
        """
        of_each = list(counted)
        if not of_each:
            raise _wrong("there are no lengths")
        lengths = sorted(of_each)
        last = len(lengths) - 1
        shares = (0.0, *(percent / 100 for percent in sorted(_SUMMED)), 1.0)
        points = tuple((share, float(lengths[math.ceil(share * last)])) for share in shares)
        return cls.parse(_as_text(points, of_each.index(lengths[-1])))

    def __str__(self) -> str:
        """The inverse of :meth:`parse`."""
        return _as_text(self.points, self.longest_at)

    @property
    def longest(self) -> int:
        return int(self.points[-1][1])

    def cut(self, most: int) -> Lengths:
        """These, with what is longer than ``most`` tokens cut there."""
        pieces = []
        for low, high in self._pieces():
            pieces.append(low)
            if low[1] < most < high[1]:
                share = low[0] + (most - low[1]) / (high[1] - low[1]) * (high[0] - low[0])
                pieces.append((share, float(most)))
        return Lengths(
            tuple((share, min(length, float(most))) for share, length in (*pieces, self.points[-1]))
        )

    def at(self, share: float) -> float:
        """The length that a share of all samples does not exceed."""
        for low, high in self._pieces():
            if share <= high[0]:
                return low[1] + (share - low[0]) / (high[0] - low[0]) * (high[1] - low[1])
        return self.points[-1][1]

    @cached_property
    def mean(self) -> float:
        return self.longest_of(1)

    @property
    def of_a_token(self) -> float:
        """The mean length of the sample that a token is in: E[L²] / E[L]; attention grows by it."""
        squares = sum(
            (high[0] - low[0]) * (low[1] ** 2 + low[1] * high[1] + high[1] ** 2) / 3
            for low, high in self._pieces()
        )
        return squares / self.mean

    def longest_of(self, count: int) -> float:
        """The expected length of the longest of ``count`` samples.

        The longest of n does not exceed q(u) with probability u^n, so it is the integral of
        q(u) n u^(n-1) over u from 0 to 1.
        """
        return sum(self._expected(low, high, count) for low, high in self._pieces())

    def longest_in_buckets(self, batch_size: int) -> float:
        """The expected length of a batch, where ``MEGA_BATCH`` batches are sorted together.

        The k-th of n samples in order of length is taken to be the mean of the k-th of n equal
        parts of all, so that all of them together have the mean that they have.
        """
        count = MEGA_BATCH * batch_size
        last = (batch_size * k for k in range(1, MEGA_BATCH + 1))
        sums = (self._summed(k / count) - self._summed((k - 1) / count) for k in last)
        return sum(sums) * count / MEGA_BATCH

    def not_exceeded(self, count: int, probability: float) -> float:
        """The length that none of ``count`` samples exceeds, with a probability."""
        return self.at(probability ** (1 / count))

    def total_not_exceeded(self, count: int, batches: int, probability: float) -> int:
        """The tokens that none of many batches exceeds, with a probability.

        The distribution of a sum of ``count`` lengths is that of one, folded with itself so often:
        a power of its Fourier transform. Lengths are put on a grid in a way that keeps their mean
        and spreads them a little, so that a bound is rather too high.
        """
        import numpy as np  # a quarter of a second, for programs that only check fields

        step = max(1, math.ceil(self.longest * count / _MAX_GRID))
        shares = (np.arange(_DRAWS) + 0.5) / _DRAWS
        known, lengths = zip(*self.points, strict=True)
        on_grid = np.interp(shares, known, lengths) / step
        below = np.floor(on_grid).astype(int)
        above = on_grid - below
        one = np.bincount(np.concatenate([below, below + 1]), np.concatenate([1 - above, above]))
        size = (len(one) - 1) * count + 1
        transform = np.fft.rfft(one / _DRAWS, 2 ** math.ceil(math.log2(size)))
        reached = np.cumsum(np.fft.irfft(transform**count))
        found = int(np.searchsorted(reached, probability ** (1 / batches)))
        return min(found * step, self.longest * count)

    def _summed(self, share: float) -> float:
        """The integral of the length over shares up to this one."""
        total = 0.0
        for low, high in self._pieces():
            end = min(share, high[0])
            if end > low[0]:
                total += (end - low[0]) * (low[1] + self.at(end)) / 2
        return total

    def _pieces(self) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        return zip(self.points, self.points[1:], strict=False)

    @staticmethod
    def _expected(low: tuple[float, float], high: tuple[float, float], count: int) -> float:
        """Contribution of a straight piece to :meth:`longest_of`."""
        slope = (high[1] - low[1]) / (high[0] - low[0])
        at_zero = low[1] - slope * low[0]
        powers = [high[0] ** n - low[0] ** n for n in (count, count + 1)]
        return at_zero * powers[0] + slope * count / (count + 1) * powers[1]


def read_lengths(path: Path) -> list[int]:
    """The lengths in a file, one number of tokens per line.

    Raises:
        InvalidInput: If it cannot be read, or has something else in it.
    """
    try:
        with path.open() as file:
            return [int(line) for line in file if line.strip()]
    except (OSError, ValueError) as error:
        raise _wrong(f"{shown(path)} cannot be read as one length per line: {error}") from error


def _listed(text: str) -> list[int]:
    """The lengths in a list.

    Raises:
        InvalidInput: If it is too long, or has something else in it.
    """
    if len(text) > MAX_LIST_CHARACTERS:
        raise _wrong(
            f"a list of lengths has at most {MAX_LIST_CHARACTERS:,} characters; the command line "
            "reads longer files (--sample-lengths FILE)"
        )
    words = text.replace(",", " ").split()
    other = next((word for word in words if not _LENGTH.fullmatch(word)), None)
    if other is not None:
        raise _wrong(f"{shown(other)}, entry {words.index(other) + 1:,}, is not a length")
    lengths = [int(word) for word in words]
    beyond = next((one for one in lengths if not 1 <= one <= MAX_SEQUENCE_LENGTH), None)
    if beyond is not None:
        raise _wrong(
            f"{beyond:,}, entry {lengths.index(beyond) + 1:,}, is not from 1 to "
            f"{MAX_SEQUENCE_LENGTH:,} tokens"
        )
    return lengths


def put_first(index: int, size: str) -> str:
    """The sentence about the longest sample.

    Args:
        index: Its place, from 0.
        size: Its length, with the unit.
    """
    return (
        f"The longest sample has index {index:,}, counted from 0 ({size}): put it first to find "
        "out in the first step whether it fits."
    )


def _as_text(points: Iterable[tuple[float, float]], longest_at: int | None) -> str:
    named = {0.0: "min", 1.0: "max"}
    percentiles = ",".join(
        f"{named.get(share) or f'p{100 * share:.6g}'}={length:.0f}" for share, length in points
    )
    return percentiles if longest_at is None else f"{percentiles}@{longest_at}"


def _wrong(why: str) -> InvalidInput:
    return InvalidInput({FIELD: f"{why}; write percentiles in tokens, such as {EXAMPLE}"})
