"""The values that the analyses of the lab have, for choices and for the search."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Exists, OuterRef

from analyses.formatting import gpu_name, local_gpu
from analyses.models import Analysis
from engine.gpus import LOCAL

_DISTINCT_SQL = """
WITH RECURSIVE found (value) AS (
    SELECT min({column}) FROM {table} WHERE {condition}
    UNION ALL
    SELECT (SELECT min({column}) FROM {table} WHERE {condition} AND {column} > found.value)
    FROM found WHERE found.value IS NOT NULL
)
SELECT value FROM found WHERE value IS NOT NULL
"""


def members() -> list[str]:
    """The names of those who have run an analysis."""
    owners = User.objects.filter(Exists(Analysis.objects.filter(owner=OuterRef("pk"))))
    return list(owners.values_list("username", flat=True))


def gpu_key(gpu: str, measured_gpu: str) -> str:
    return local_gpu(measured_gpu) if gpu == LOCAL and measured_gpu else gpu


def gpu_title(gpu: str, measured_gpu: str) -> str:
    return measured_gpu or gpu_name(gpu)


def models() -> list[str]:
    return _values("model")


def precisions() -> list[str]:
    """Without that of scripts, whose code decides it."""
    return list(filter(None, _values("precision")))


def optimizers() -> list[str]:
    return list(filter(None, _values("optimizer")))


def software() -> list[str]:
    """Without the lab's own, which has no name."""
    return list(filter(None, _values("software")))


def gpus() -> list[tuple[str, str]]:
    """Each as the pair stored in ``gpu`` and ``measured_gpu``."""
    names = _values("gpu")
    measured = _values("measured_gpu", "gpu = %s", LOCAL)
    return [(name, "") for name in names if name != LOCAL] + [(LOCAL, kind) for kind in measured]


def _values(column: str, condition: str = "1 = 1", *values: str) -> list[str]:
    """The distinct values of a column, found by leaps through its index.

    Neither SQLite nor PostgreSQL leaps by itself: their ``SELECT DISTINCT`` reads every entry.
    """
    quoted = connection.ops.quote_name
    table = quoted(Analysis._meta.db_table)
    sql = _DISTINCT_SQL.format(column=quoted(column), table=table, condition=condition)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*values, *values])
        return [value for (value,) in cursor.fetchall()]
