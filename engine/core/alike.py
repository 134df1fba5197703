"""Computes once what many rows have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

_Row = TypeVar("_Row", bound=Hashable)
_Value = TypeVar("_Value")


class Alike(Generic[_Row]):
    """Rows many of which are equal, as those of a model's blocks are.

    Args:
        rows: The rows, in order.
    """

    def __init__(self, rows: Iterable[_Row]) -> None:
        every = list(rows)
        numbers = {row: number for number, row in enumerate(dict.fromkeys(every))}
        self._unequal = list(numbers)
        self._numbers = [numbers[row] for row in every]

    def map(self, compute: Callable[[_Row], _Value]) -> list[_Value]:
        """The value of each row, computed once for those that are equal."""
        values = [compute(row) for row in self._unequal]
        return [values[number] for number in self._numbers]
