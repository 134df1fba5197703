"""Values that many rows have in common are computed once, and each row has its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.core.alike import Alike


@given(st.lists(st.integers(0, 9)))
def test_each_row_has_its_value_computed_once_for_equal_ones(rows: list[int]) -> None:
    computed: list[int] = []

    def squared(row: int) -> int:
        computed.append(row)
        return row**2

    assert Alike(rows).map(squared) == [row**2 for row in rows]
    assert sorted(computed) == sorted(set(rows))
