"""Which analyses count as savings, kept at hand: adding a lab's up must not read all it has asked.

A workload on a GPU counts once for each of its owners: by the newest of their analyses of it that
is adopted, else by the newest that has succeeded. Whatever can change that happens within
:func:`counted_anew`: an answer, an adoption, one that is taken back, a deletion.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.lookups import IsNull

from analyses.models import Analysis, CountedSavings, Status

_REPEATED = ("owner_id", "workload_key", "model", "gpu", "measured_gpu", "source")
_DATES = ("adopted_at", "finished_at", "queued_at")
_SUMS = ("usd_per_year", "gpu_hours_per_year")


@contextmanager
def counted_anew(analyses: QuerySet[Analysis]) -> Iterator[None]:
    """Count the workloads of these analyses anew once they are changed, in one transaction.

    Their owners' rows are locked first. So where two transactions change analyses of one workload,
    the second waits, and counts with what the first has written; and all who lock both lock owners
    before analyses, so that no two wait for each other. (SQLite lets one at a time write anyway.)
    """
    with transaction.atomic():
        changed = sorted(set(analyses.order_by().values_list("owner_id", "workload_key")))
        owners = User.objects.filter(pk__in={owner for owner, _ in changed}).order_by("pk")
        list(owners.select_for_update(no_key=True).values_list("pk"))
        yield
        for owner, key in changed:
            _count(owner, key)


def _count(owner: int, key: str) -> None:
    counting = (
        Analysis.objects.filter(status=Status.SUCCEEDED, owner=owner, workload_key=key)
        .order_by(IsNull(F("adopted_at"), True), "-pk")  # adopted ones first
        .only(*_REPEATED, *_DATES, *_SUMS)
        .first()
    )
    stored = CountedSavings.objects.filter(owner=owner, workload_key=key)
    if counting is None:
        stored.delete()
    elif not stored.update(**columns_of(counting)):
        CountedSavings.objects.create(**columns_of(counting))


def columns_of(analysis: Analysis) -> dict[str, Any]:
    """The columns of the savings that count by this analysis."""
    since = analysis.adopted_at or analysis.finished_at or analysis.queued_at
    return {
        "analysis_id": analysis.pk,
        "month": since.astimezone(UTC).date().replace(day=1),
        "is_realised": analysis.adopted_at is not None,
        **{name: getattr(analysis, name) for name in _REPEATED},
        **{name: getattr(analysis, name) or 0.0 for name in _SUMS},
    }
