"""Tables that begin short: their first rows, and on request more of them.

On a phone each row is a card of its own, so that fifty of them are thirty screens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_Row = TypeVar("_Row")

FIRST_ROWS = 10
MAX_ROWS = 50
"""Rows of a table on a page; its CSV has them all."""

ROWS, ALL = "rows", "all"


@dataclass(frozen=True)
class LongTable(Generic[_Row]):
    """The rows of a table that are shown.

    Attributes:
        rows: In the table's order.
        count: Number of all rows.
        longer: Query of the address that shows more; empty where there are none, or no more are
            shown.
    """

    rows: Sequence[_Row]
    count: int
    longer: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the table has rows that are not shown."""
        return self.count > len(self.rows)

    @property
    def next_count(self) -> int:
        """Number of rows that the longer table shows."""
        return min(self.count, MAX_ROWS)


def long_table(rows: Sequence[_Row], given: Mapping[str, str], query: str) -> LongTable[_Row]:
    """The first rows of a table, or as many as a page shows.

    Args:
        rows: All of them.
        given: The fields of the address.
        query: The query of the page without the number of rows; it begins with a question mark.
    """
    if given.get(ROWS) == ALL or len(rows) <= FIRST_ROWS:
        return LongTable(rows[:MAX_ROWS], len(rows))
    return LongTable(rows[:FIRST_ROWS], len(rows), f"{query}&{ROWS}={ALL}")
