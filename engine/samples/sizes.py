"""From the sizes found in a data sample to a padded input size: pure arithmetic on counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

MULTIPLE = 8
"""Sizes are padded to a multiple of it: tensor cores want dimensions that are multiples of 8 in
half precision (NVIDIA, Deep Learning Performance Guide, "Tensor Core Requirements"), and collators
commonly pad so (``pad_to_multiple_of=8``)."""

Counts = Mapping[int, int]
"""How many samples there are of each size."""


@dataclass(frozen=True)
class Spread:
    """The sizes of a data sample along one dimension, in tokens or pixels.

    Attributes:
        smallest, median, largest: Of the samples.
        at_percentile: The size that the chosen share of the samples does not exceed.
        padded: That size padded to a multiple of 8.
        worst: The largest size padded likewise.
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
    """The smallest size that at least ``percent`` % of the samples do not exceed (nearest rank).

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
    # Rounded against the dust of floating point, which would ask for one sample more.
    needed = max(1, math.ceil(round(total * percent / 100, 9)))
    seen = 0
    for size in sorted(counts):
        seen += counts[size]
        if seen >= needed:
            break
    return size


def padded(size: int, multiple: int = MULTIPLE) -> int:
    """The smallest multiple that holds a size, and one multiple at least."""
    return max(1, -(-size // multiple)) * multiple


def above(counts: Counts, size: int) -> int:
    """How many samples are larger than a size."""
    return sum(count for found, count in counts.items() if found > size)
