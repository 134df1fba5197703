"""Counted savings: one row per workload, written whenever that may change.

A workload on a GPU counts once for the lab: by the newest analysis of it that is adopted,
no matter who ran it, else by the newest that succeeded. Its savings are those of the member who
adopted it, else of the analysis's owner. Every training run that verifies an analysis of an adopted
workload counts for itself. Everything that can change this runs within :func:`recounting`: a
result, an adoption and its undoing, a deletion, a report, another project. So adding up a lab's
savings reads these short rows and not every analysis.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, date, datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.db.models.lookups import IsNull

from analyses.models import Analysis, CountedSavings, RunSavings, Status, TrainingRun
from analyses.models.savings import NO_RUN_YET
from analyses.savings import kept
from analyses.savings.certainty import NOTHING, Counted, counted
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.gpus import canonical_name
from engine.interface.request import usual_values
from engine.interface.subject import program_hash_in
from engine.interface.workload import Workload

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
    if program := program_hash_in(request):  # its code decides all the rest
        settings["program"] = program
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


_REPEATED = ("workload_key", "model", "gpu", "measured_gpu", "project_id", "source")
_COUNTED_BY = ("owner_id", "adopted_by_id", "has_gain", "result")
_DATES = ("adopted_at", "finished_at", "queued_at")
_SUMS = ("usd_per_year", "gpu_hours_per_year")
_ENERGY = ("kwh_per_year", "kg_co2e_per_year")

_LOCKS = 256
"""More at once would need more of PostgreSQL's shared memory than it has by default."""


@contextmanager
def recounting(analyses: QuerySet[Analysis]) -> Iterator[None]:
    """Change these analyses or their training runs and recount their workloads, in one transaction.

    The workloads are locked first. Of two transactions that change analyses of one workload, the
    second waits and counts with what the first has written. Everything that locks both locks
    workloads before analyses, so there are no deadlocks.
    """
    with transaction.atomic():
        changed = dict(analyses.order_by().values_list("pk", "workload_key"))
        keys = set(changed.values())
        _lock(keys)
        yield
        # An analysis of any GPU has another workload once its answer names one.
        if len(changed) == 1:
            moved = Analysis.objects.filter(pk__in=changed)
            keys |= set(moved.values_list("workload_key", flat=True))
        for key in sorted(keys):
            _recount(key)
        kept.forget()


def _lock(keys: Collection[str]) -> None:
    """Wait for other transactions that change these workloads; SQLite has a single writer."""
    if connection.vendor != "postgresql":
        return
    numbers = sorted({int(hashlib.sha256(key.encode()).hexdigest(), 16) % _LOCKS for key in keys})
    with connection.cursor() as cursor:
        for number in numbers:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_SAVINGS_LOCK, number])


_SAVINGS_LOCK = 20
"""The first half of the number of each lock, so that no other use of such locks meets it."""


def _recount(key: str) -> None:
    counting = (
        Analysis.objects.filter(status=Status.SUCCEEDED, goal=Goal.BATCH, workload_key=key)
        .exclude(current_batch_size=None)  # nothing is saved where there was no batch
        .order_by(IsNull(F("adopted_at"), True), "-pk")  # adopted ones first
        .only(*_REPEATED, *_COUNTED_BY, *_DATES, *_SUMS, *_ENERGY)
        .first()
    )
    stored = CountedSavings.objects.filter(workload_key=key)
    RunSavings.objects.filter(workload_key=key).delete()
    if counting is None:
        stored.delete()
        return
    columns = columns_of(counting)
    if counting.adopted_at is not None:
        runs = list(_runs(columns, counting))
        RunSavings.objects.bulk_create(runs)
        columns |= _verified_by(runs)
    if not stored.update(**columns):
        CountedSavings.objects.create(**columns)


def columns_of(analysis: Analysis) -> dict[str, Any]:
    """The row of counted savings that this analysis stands for, before any training run."""
    since = _day(analysis.adopted_at or analysis.finished_at or analysis.queued_at)
    factors = _factors(analysis)
    usd, hours = (getattr(analysis, name) or 0.0 for name in _SUMS)
    return {
        "analysis_id": analysis.pk,
        "member_id": (analysis.adopted_by_id if analysis.adopted_at else None) or analysis.owner_id,
        "month": since.replace(day=1),
        "since_day": since.toordinal(),
        "assumed_until": NO_RUN_YET,
        "is_realised": analysis.adopted_at is not None,
        "is_verified": False,
        "at_low_end": factors.at_low_end,
        "usd_per_year": usd * factors.value,
        "usd_per_year_low": usd * factors.low,
        "usd_per_year_high": usd * factors.high,
        "gpu_hours_per_year": hours * factors.value,
        **{name: getattr(analysis, name) for name in _REPEATED},
        **{
            name: None if value is None else value * factors.value
            for name in _ENERGY
            for value in [getattr(analysis, name)]
        },
    }


def _factors(analysis: Analysis) -> Counted:
    return counted(analysis.source, analysis.result) if analysis.has_gain else NOTHING


def _runs(columns: Mapping[str, Any], counting: Analysis) -> Iterator[RunSavings]:
    """Yield the savings of each training run of an adopted workload, at the workload's price.

    A run that took ``h`` GPU-hours in training steps would have taken ``h * s`` at the batch
    before, so it saved ``h * (s - 1)``; ``s`` is the speedup of the analysis that it reported to.
    """
    of_workload = TrainingRun.objects.filter(
        analysis__workload_key=counting.workload_key, verifies=True
    )
    reported_to = Analysis.objects.filter(pk__in=of_workload.values("analysis"))
    factors = {row.pk: _factors(row) for row in reported_to.only("source", "has_gain", "result")}
    price = _price(counting)
    repeated = (
        "workload_key", "member_id", "model", "gpu", "measured_gpu", "project_id", "month",
    )  # fmt: skip
    runs = TrainingRun.objects.filter(analysis__in=factors, verifies=True)
    for run in runs.only("analysis_id", "gpu_hours", "recorded_at"):
        factor = factors[run.analysis_id or 0]
        yield RunSavings(
            training_id=run.pk,
            day=_day(run.recorded_at).toordinal(),
            gpu_hours=run.gpu_hours * factor.per_gpu_hour,
            usd=run.gpu_hours * price * factor.per_gpu_hour,
            usd_low=run.gpu_hours * price * factor.per_gpu_hour_low,
            usd_high=run.gpu_hours * price * factor.per_gpu_hour_high,
            **{name: columns[name] for name in repeated},
        )


def _price(analysis: Analysis) -> float:
    """USD per GPU-hour, as the analysis assumes; 0 where it saves nothing."""
    savings = (analysis.result or {}).get("savings") or {}
    return float(savings.get("price_per_hour_usd") or 0.0)


def _verified_by(runs: Iterable[RunSavings]) -> dict[str, Any]:
    first = min((run.day for run in runs), default=None)
    if first is None:
        return {}
    return {"is_verified": True, "assumed_until": first - 1}


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
