"""Steps on samples of different lengths: memory of the worst batch of a run, time of the mean one.

Every length is traced as any other workload. Of the worst batch comes the memory, of the mean one
the work: it lies between two traced lengths, and so does each of its operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from ..core.choices import Batching
from ..features.length_distribution import Lengths, put_first
from ..interface.result import BatchLengths
from ..interface.workload import Workload
from ..tracing.trace import Operation, Trace
from .source import TraceSource

PROBABILITY = 0.99
"""Probability that no batch of a run needs more memory than predicted; its length is a setting."""

_STEPS = 32
"""Number of distinct lengths, up to the longest: the worst one is rounded up."""

_UNIT = 64
"""Tokens of the short rows that stand for a long one: without padding and masks, memory grows by
the token, wherever rows end."""

_MULTIPLE = 8  # tokens, as tokenizers pad to


@dataclass(frozen=True)
class Batches:
    """The batches of a workload whose samples differ in length.

    Attributes:
        workload: A workload with a batching that is not fixed, and all of its sizes.
    """

    workload: Workload

    @cached_property
    def lengths(self) -> Lengths:
        """Lengths of its samples, cut at the sequence length."""
        return Lengths.parse(self.workload.sample_lengths or "").cut(self.most)

    @property
    def most(self) -> int:
        return self.workload.sequence_length or 1

    @property
    def longest(self) -> int:
        return min(self.most, self.lengths.longest)

    def worst(self, batch_size: int) -> int:
        """Tokens of the longest row that comes in a run, padding included.

        None is longer with :data:`PROBABILITY`.
        """
        if self.workload.batching is Batching.PACKED:
            return self.most
        if self.workload.batching is Batching.MAX_TOKENS:
            return self.longest
        drawn = batch_size * self.workload.run_batches
        length = self.lengths.not_exceeded(drawn, PROBABILITY)
        step = _MULTIPLE * math.ceil(self.longest / _STEPS / _MULTIPLE)
        return min(self.longest, step * math.ceil(length / step))

    def mean(self, batch_size: int) -> float:
        """Tokens of a row in the mean over all batches, padding included.

        The GPUs of a step wait for the one with the longest row.
        """
        count = batch_size * self.workload.data_parallel
        match self.workload.batching:
            case Batching.LONGEST:
                return self.lengths.longest_of(count)
            case Batching.BUCKETED:
                return self.lengths.longest_in_buckets(count)
            case _:
                return float(self.worst(batch_size))

    def worst_total(self, batch_size: int) -> int:
        """Tokens of the longest row that all samples of a batch stand in, as :meth:`worst`."""
        batches = self.workload.run_batches
        return self.lengths.total_not_exceeded(batch_size, batches, PROBABILITY)

    def padding(self, batch_size: int) -> float:
        """The share of all tokens that is padding."""
        if not self.workload.batching.pads or self.workload.batching is Batching.MAX_TOKENS:
            return 0.0
        return max(0.0, 1 - self.lengths.mean / self.mean(batch_size))

    @property
    def samples_per_row(self) -> float:
        """Samples that a batch has for each of its size.

        Packed rows are taken to be full. A batch with a token limit has as many samples as hold
        that many: those of a batch are alike in length, since they are sorted first.
        """
        return self.worst(1) / self.lengths.mean if self._is_full else 1.0

    @property
    def _is_full(self) -> bool:
        """Whether every batch has the same number of tokens."""
        return self.workload.batching in (Batching.PACKED, Batching.MAX_TOKENS)

    def of_batch(self, batch_size: int) -> BatchLengths:
        """The batches of one size in numbers."""
        in_one_row = self.workload.batching is Batching.PADDING_FREE
        total = batch_size * self.lengths.mean
        return BatchLengths(
            batch_size=batch_size,
            worst_tokens=self.worst_total(batch_size) if in_one_row else self.worst(batch_size),
            probability=1.0 if self._is_full else PROBABILITY,
            run_batches=self.workload.run_batches,
            mean_tokens=total if in_one_row else self.mean(batch_size),
            padding=self.padding(batch_size),
        )

    def told(self, batch_size: int) -> str:
        """Caveat of an answer about the batches of one size."""
        found = self.of_batch(batch_size)
        worst, samples = f"{found.worst_tokens:,} tokens", self.samples_per_row
        if self.workload.batching is Batching.PACKED:
            return (
                f"A row holds {worst}, {samples:,.1f} samples on average; rows are assumed to be "
                "full. Batch sizes are rows."
            )
        if self.workload.batching is Batching.PADDING_FREE:
            return (
                f"Memory is that of the worst batch: {worst} in a row. With "
                f"{found.probability:.0%} probability none of {found.run_batches:,} batches has "
                "more (assumed: samples are drawn independently). Speed is that of the mean batch: "
                f"{found.mean_tokens:,.0f} tokens, without padding."
            )
        if self.workload.batching is Batching.MAX_TOKENS:
            return (
                f"Batch {batch_size:,} stands for max_tokens = "
                f"{batch_size * found.worst_tokens:,}: as many samples as the longest one, of "
                f"{worst}, leaves room for, {batch_size * samples:,.1f} on average. Samples of a "
                "batch are assumed to be alike in length."
            )
        return (
            f"Memory is that of the worst batch: {worst} a sample. With {found.probability:.0%} "
            f"probability none of {found.run_batches:,} batches is longer (assumed: samples are "
            "drawn independently). Speed is that of the mean batch: "
            f"{found.mean_tokens:,.0f} tokens a sample, {found.padding:.0%} of them padding."
        )


def samples_per_row(workload: Workload) -> float:
    """Samples that a step has for each of its batch size."""
    if workload.batching is Batching.FIXED:
        return 1.0
    return Batches(workload).samples_per_row


def lengths_of(workload: Workload, batch_size: int) -> BatchLengths | None:
    """The lengths of a batch in numbers; ``None`` where all samples are of one length."""
    if workload.batching is Batching.FIXED:
        return None
    return Batches(workload).of_batch(batch_size)


def about_lengths(workload: Workload, batch_size: int) -> list[str]:
    """Caveats of an answer about the lengths of its samples, where they differ."""
    if workload.batching is Batching.FIXED:
        return []
    given = Lengths.parse(workload.sample_lengths or "")
    told = [Batches(workload).told(batch_size)]
    if given.longest_at is not None:
        told.append(put_first(given.longest_at, f"{given.longest:,} tokens"))
    return told


class OfEveryLength:
    """Traces a workload whose samples differ in length.

    Args:
        workload: The workload.
        trace_with: Traces a workload of one length at every batch size.

    Attributes:
        sources: The traces of samples of one length, by length.
    """

    def __init__(self, workload: Workload, trace_with: Callable[[Workload], TraceSource]) -> None:
        self.sources: dict[int, TraceSource] = {}
        self._batches, self._trace_with = Batches(workload), trace_with

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sources!r})"

    def at(self, batch_size: int) -> Trace:
        if self._batches.workload.batching is Batching.PADDING_FREE:
            return self._in_one_row(batch_size)
        worst, mean = self._batches.worst(batch_size), self._batches.mean(batch_size)
        trace = self._of_length(worst).at(batch_size)
        if mean == worst:
            return trace
        return replace(trace, operations=self._work(batch_size, mean))

    def _of_length(self, length: int) -> TraceSource:
        if length not in self.sources:
            fixed = replace(self._batches.workload, sequence_length=length)
            self.sources[length] = self._trace_with(fixed)
        return self.sources[length]

    def _in_one_row(self, batch_size: int) -> Trace:
        """The trace of a batch whose samples all stand in one row."""
        lengths = self._batches.lengths
        rows = math.ceil(self._batches.worst_total(batch_size) / self._unit)
        trace = self._of_length(self._unit).at(max(2, rows))
        more = lengths.mean / self._unit
        return replace(
            trace,
            batch_size=batch_size,
            operations=self._work_of_row(batch_size * lengths.mean, lengths.of_a_token),
            slopes=[round(slope * more) for slope in trace.slopes],
        )

    @property
    def _unit(self) -> int:
        return min(_UNIT, self._batches.most)

    def _work_of_row(self, tokens: float, length: float) -> list[Operation]:
        """Operations of a row of ``tokens`` tokens in samples of a length, which attention sees.

        Work grows evenly by the token, and at the same number of tokens by the length.
        """
        of_units, of_longest = (
            between(source.at(2).operations, source.at(3).operations, tokens / row - 2)
            for row in (self._unit, self._batches.longest)
            for source in [self._of_length(row)]
        )
        if self._batches.longest <= self._unit:
            return of_units
        share = (length - self._unit) / (self._batches.longest - self._unit)
        return between(of_units, of_longest, max(0.0, share))

    def _work(self, batch_size: int, length: float) -> list[Operation]:
        """The operations at a length, between those of two traced ones a factor of 2 apart."""
        high = self._batches.longest
        while high // 2 >= max(length, _MULTIPLE):
            high //= 2
        low = max(high // 2, min(high, _MULTIPLE))
        above = self._of_length(high).at(batch_size).operations
        if low == high:
            return above
        below = self._of_length(low).at(batch_size).operations
        return between(below, above, max(0.0, (length - low) / (high - low)))


def between(low: list[Operation], high: list[Operation], share: float) -> list[Operation]:
    """Operations that lie a share of the way from some to others.

    Where a shorter text makes a step do other things, they are the others.
    """
    if [one.name for one in low] != [one.name for one in high]:
        return high
    return [
        one.with_numbers(
            tuple(
                round(less + share * (more - less))
                for less, more in zip(other.numbers, one.numbers, strict=True)
            )
        )
        for other, one in zip(low, high, strict=True)
    ]
