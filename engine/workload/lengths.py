"""How long samples are where they differ, and how batches are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..choices import Batching
from ..fields import Described, Group, Interval


@dataclass(frozen=True, kw_only=True)
class SampleLengths:
    """How long samples are where they differ, and how batches are made of them."""

    batching: Annotated[
        Batching,
        Described(
            "Batching",
            "How samples of different lengths become a batch. Anything but fixed needs the lengths "
            "of your samples.",
            Group.LENGTHS,
        ),
    ] = Batching.FIXED
    sample_lengths: Annotated[
        str | None,
        Described(
            "Sample lengths",
            "Percentiles of your samples' lengths in tokens, such as "
            "p50=310,p90=900,p99=2100,max=4096; the command line also takes a file with one "
            "length per line. What is longer than the sequence length is cut.",
            Group.LENGTHS,
            empty="all as long as the sequence length",
            metavar="LENGTHS",
        ),
    ] = None
    run_batches: Annotated[
        int,
        Interval(ge=1, le=100_000_000),
        Described(
            "Batches per run",
            "Batches of one training run, over all GPUs and micro-batches. With 99% probability "
            "none of them needs more memory than predicted.",
            Group.LENGTHS,
            unit="batches",
        ),
    ] = 10_000
