"""SQLite's query plans for large labs: each uses the index that leaves least to read.

PostgreSQL decides by the amount of data, so its plans differ in labs as small as these.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from analyses.models import Analysis, CountedSavings, Status
from analyses.savings.breakdown import largest_first
from analyses.selectors import count_of

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="it is of SQLite's plans"),
]


def _plan(ask: Callable[[], object]) -> str:
    with CaptureQueriesContext(connection) as queries:
        ask()
    (query,) = queries
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN QUERY PLAN " + query["sql"])
        return "\n".join(row[-1] for row in cursor.fetchall())


@pytest.mark.parametrize("column", ["model", "gpu", "precision"])
def test_the_status_filter_does_not_lead_since_nearly_all_succeed(column: str) -> None:
    some = Analysis.objects.filter(status=Status.SUCCEEDED, **{column: "one"})
    assert f"({column}=?)" in _plan(lambda: count_of(some))


def test_savings_are_listed_without_sorting_them() -> None:
    plan = _plan(lambda: list(largest_first(CountedSavings.objects.all())[:25]))
    assert "SCAN analyses_countedsavings USING INDEX largest_savings" in plan
    assert "TEMP B-TREE" not in plan
