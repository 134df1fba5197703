"""Which analyses count as savings: one row per workload, written whenever that may change.

A workload on a GPU counts once for each owner: by the newest of their analyses of it that is
adopted, else by the newest that succeeded. Everything that can change this runs within
:func:`recounting`: an answer, an adoption and its undoing, a deletion. So adding up a lab's savings
reads these short rows and not every analysis.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.lookups import IsNull

from analyses.models import Analysis, CountedSavings, Status
from engine.errors import InvalidInput
from engine.gpus import canonical_name
from engine.request import usual_values
from engine.workload import Workload

_TRAINED = {field.name for field in fields(Workload)} - {"gradient_accumulation"}
"""Without accumulation, which follows from the batch size that a recommendation changes."""


def workload_key(request: Mapping[str, Any], measured_gpu: str = "") -> str:
    """A hash that is equal for analyses of the same workload on the same GPU.

    Batch sizes and assumptions do not enter. Only settings that differ from their defaults do, so
    keys stay valid when a later version adds a setting.

    Args:
        request: The stored fields of a request.
        measured_gpu: The kind of GPU to measure on; empty for a prediction. It counts as the
            catalogue's GPU of that name.
    """
    usual = usual_values(request)
    settings = {
        name: value
        for name, value in request.items()
        if name in _TRAINED and value is not None and value != usual.get(name)
    }
    settings |= {
        "model": request["model"],
        "gpu": _kind(measured_gpu or request["gpu"]),
        "memory_limit_bytes": request.get("memory_limit_bytes"),  # it makes it a smaller GPU
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _kind(gpu: str) -> str:
    try:
        return canonical_name(gpu)
    except InvalidInput:  # a node's GPU that is not in the catalogue
        return gpu


_REPEATED = ("owner_id", "workload_key", "model", "gpu", "measured_gpu", "source")
_DATES = ("adopted_at", "finished_at", "queued_at")
_SUMS = ("usd_per_year", "gpu_hours_per_year")
_ENERGY = ("kwh_per_year", "kg_co2e_per_year")


@contextmanager
def recounting(analyses: QuerySet[Analysis]) -> Iterator[None]:
    """Change these analyses and recount their workloads, in one transaction.

    Their owners' rows are locked first. Of two transactions that change analyses of one workload,
    the second waits and counts with what the first has written. Everything that locks both locks
    owners before analyses, so there are no deadlocks. (SQLite has a single writer anyway.)
    """
    with transaction.atomic():
        changed = sorted(set(analyses.order_by().values_list("owner_id", "workload_key")))
        owners = User.objects.filter(pk__in={owner for owner, _ in changed}).order_by("pk")
        list(owners.select_for_update(no_key=True).values_list("pk"))
        yield
        for owner, key in changed:
            _recount(owner, key)


def _recount(owner: int, key: str) -> None:
    counting = (
        Analysis.objects.filter(status=Status.SUCCEEDED, owner=owner, workload_key=key)
        .exclude(current_batch_size=None)  # nothing is saved where there was no batch
        .order_by(IsNull(F("adopted_at"), True), "-pk")  # adopted ones first
        .only(*_REPEATED, *_DATES, *_SUMS, *_ENERGY)
        .first()
    )
    stored = CountedSavings.objects.filter(owner=owner, workload_key=key)
    if counting is None:
        stored.delete()
    elif not stored.update(**columns_of(counting)):
        CountedSavings.objects.create(**columns_of(counting))


def columns_of(analysis: Analysis) -> dict[str, Any]:
    """The row of counted savings that this analysis stands for."""
    since = analysis.adopted_at or analysis.finished_at or analysis.queued_at
    return {
        "analysis_id": analysis.pk,
        "month": since.astimezone(UTC).date().replace(day=1),
        "is_realised": analysis.adopted_at is not None,
        **{name: getattr(analysis, name) for name in (*_REPEATED, *_ENERGY)},
        **{name: getattr(analysis, name) or 0.0 for name in _SUMS},
    }
