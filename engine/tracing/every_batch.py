"""The trace of a step at every batch size, from those at two or three."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, cast

from ..core.alike import Alike
from ..core.errors import EngineError
from .column_sums import ColumnSums, with_scratch
from .trace import NeedsTwoSamples, Operation, Trace


def one_sample(trace: Callable[[int], Trace], two: Trace) -> Trace:
    """The trace of batch 1; where PyTorch refuses that, the one of batch 2 in its place.

    It takes no less memory and no less time, so that no search ends at batch 1.
    """
    try:
        return trace(1)
    except NeedsTwoSamples:
        return replace(two, batch_size=1, stands_in=True)


class NotAffine(EngineError):
    """The step does other things at other batch sizes, so two traces do not give them all."""


@dataclass(frozen=True)
class AffineTrace:
    """The trace at every batch size: each tensor takes ``base + slope · batch`` bytes.

    Attributes:
        low, high: The two traces it comes from, of unequal batch sizes and alike otherwise.
    """

    rule: ClassVar[str] = "each linear in the batch size"

    low: Trace
    high: Trace

    def __post_init__(self) -> None:
        alike = (
            self.low.events == self.high.events
            and self.low.categories == self.high.categories
            and self.low.column_sums.keys() == self.high.column_sums.keys()
            and _kinds(self.low.operations) == _kinds(self.high.operations)
        )
        if not alike:
            raise NotAffine(
                f"the step is not alike at batch {self.low.batch_size} and {self.high.batch_size}"
            )

    def __getstate__(self) -> dict[str, object]:
        return {"low": self.low, "high": self.high}

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size; it shares everything but the sizes and the work."""
        at = partial(self._at, batch_size)
        sums = self._sums.at(at)
        return replace(
            self.low,
            batch_size=batch_size,
            sizes=with_scratch(at(self.low.sizes, self.high.sizes), sums),
            column_sums=sums,
            operations=self._operations.at(at),
            slopes=self._slopes,
            host_bytes=at([self.low.host_bytes], [self.high.host_bytes])[0],
        )

    @cached_property
    def _operations(self) -> _Operations:
        return _Operations(self.low.operations, self.high.operations)

    @cached_property
    def _sums(self) -> ColumnSums:
        return ColumnSums(self.low.column_sums, self.high.column_sums)

    @cached_property
    def _slopes(self) -> list[int]:
        apart = self.high.batch_size - self.low.batch_size
        slopes = [
            (high - low) // apart for low, high in zip(self.low.sizes, self.high.sizes, strict=True)
        ]
        for scratch in self.low.column_sums:  # grows in steps, and may be larger at fewer samples
            slopes[scratch] = 0
        return slopes

    def _at(self, batch_size: int, low: Sequence[int], high: Sequence[int]) -> list[int]:
        apart = self.high.batch_size - self.low.batch_size
        steps = batch_size - self.low.batch_size
        return [a + (b - a) * steps // apart for a, b in zip(low, high, strict=True)]


class _Operations:
    """The operations of a step at every batch size.

    Args:
        traced: The operations at each of the batch sizes that were traced.
    """

    def __init__(self, *traced: Sequence[Operation]) -> None:
        each = zip(*traced, strict=True)
        # == ignores the first two
        self._rows = Alike((alike[0].unrolled, alike[0].waits, *alike) for alike in each)

    def at(self, interpolate: Callable[..., Sequence[int]]) -> list[Operation]:
        """The operations at another batch size, by their numbers at each of those."""

        def there(row: tuple[Any, ...]) -> Operation:
            _, _, *alike = row
            numbers = interpolate(*(one.numbers for one in alike))
            return cast(Operation, alike[0].with_numbers(tuple(numbers)))

        return self._rows.map(there)


def _kinds(operations: Iterable[Operation]) -> list[tuple[str, str, int]]:
    """Traits that have to be alike, without the lengths that phases of generating text have."""
    return [(one.name, one.phase.partition(" ")[0], len(one.shape)) for one in operations]


@dataclass(frozen=True)
class QuadraticTrace:
    """The trace at every batch size: each tensor takes ``a + b · batch + c · batch²`` bytes.

    Attributes:
        first, second, third: Traces at three successive batch sizes, alike otherwise.
    """

    rule: ClassVar[str] = "each quadratic in the batch size"

    first: Trace
    second: Trace
    third: Trace

    def __post_init__(self) -> None:
        # Refuses traces of unlike steps.
        AffineTrace(self.first, self.second)
        AffineTrace(self.second, self.third)

    def __getstate__(self) -> dict[str, object]:
        return {"first": self.first, "second": self.second, "third": self.third}

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size; it shares everything but the sizes and the work."""
        at = partial(self._at, batch_size)
        traces = self.first, self.second, self.third
        sums = self._sums.at(at)
        return replace(
            self.first,
            batch_size=batch_size,
            sizes=with_scratch(at(*(traced.sizes for traced in traces)), sums),
            column_sums=sums,
            operations=self._operations.at(at),
            host_bytes=at(*([traced.host_bytes] for traced in traces))[0],
        )

    @cached_property
    def _operations(self) -> _Operations:
        return _Operations(*(one.operations for one in (self.first, self.second, self.third)))

    @cached_property
    def _sums(self) -> ColumnSums:
        return ColumnSums(*(one.column_sums for one in (self.first, self.second, self.third)))

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
