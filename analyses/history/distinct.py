"""What values a column has, found by leaps through its index: as fast for a long table as a short.

Neither SQLite nor PostgreSQL leaps by itself: their ``SELECT DISTINCT`` reads every entry.
"""

from __future__ import annotations

from django.db import connection

from analyses.models import Analysis
from engine.gpus import LOCAL

_SQL = """
WITH RECURSIVE found (value) AS (
    SELECT min({column}) FROM {table} WHERE {condition}
    UNION ALL
    SELECT (SELECT min({column}) FROM {table} WHERE {condition} AND {column} > found.value)
    FROM found WHERE found.value IS NOT NULL
)
SELECT value FROM found WHERE value IS NOT NULL
"""


def models() -> list[str]:
    """The models that the lab has asked about."""
    return _values("model")


def precisions() -> list[str]:
    """The precisions it has asked about."""
    return _values("precision")


def gpus() -> list[tuple[str, str]]:
    """The GPUs it has asked about: each as it is stored in ``gpu`` and ``measured_gpu``."""
    names = _values("gpu")
    measured = _values("measured_gpu", "gpu = %s", LOCAL)
    return [(name, "") for name in names if name != LOCAL] + [(LOCAL, kind) for kind in measured]


def _values(column: str, condition: str = "1 = 1", *values: str) -> list[str]:
    quoted = connection.ops.quote_name
    table = quoted(Analysis._meta.db_table)
    sql = _SQL.format(column=quoted(column), table=table, condition=condition)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*values, *values])
        return [value for (value,) in cursor.fetchall()]
