"""Traces of steps that compare each sample of a batch with every other: sizes with a square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.tracing.trace import AffineTrace, Trace, with_work


@dataclass(frozen=True)
class QuadraticTrace:
    """The trace at every batch size: each tensor takes ``a + b · batch + c · batch²`` bytes.

    Attributes:
        first, second, third: Traces at three successive batch sizes, alike otherwise.
    """

    first: Trace
    second: Trace
    third: Trace

    def __post_init__(self) -> None:
        # Refuses traces of unlike steps.
        AffineTrace(self.first, self.second)
        AffineTrace(self.second, self.third)

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size; it shares everything but the sizes and the work."""
        traces = (self.first, self.second, self.third)
        work = [traced.operations for traced in traces]
        flops = self._at(batch_size, *([op.flops for op in operations] for operations in work))
        moved = self._at(
            batch_size, *([op.bytes_moved for op in operations] for operations in work)
        )
        return replace(
            self.first,
            batch_size=batch_size,
            sizes=self._at(batch_size, *(traced.sizes for traced in traces)),
            operations=with_work(work[0], flops, moved),
        )

    def _at(
        self, batch_size: int, first: Sequence[int], second: Sequence[int], third: Sequence[int]
    ) -> list[int]:
        """Newton's interpolation through three points, exact in whole numbers."""
        steps = batch_size - self.first.batch_size
        pairs = steps * (steps - 1) // 2
        return [
            a + (b - a) * steps + (c - 2 * b + a) * pairs
            for a, b, c in zip(first, second, third, strict=True)
        ]
