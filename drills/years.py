"""Fills a lab with years of analyses in a few minutes, each with ten trials.

The requests are random, but the same for the same count; every result comes from the real engine.
Runs in a process with the lab's settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.expressions import RawSQL

from analyses.models import (
    Analysis,
    CountedSavings,
    FigureSource,
    LogLine,
    Note,
    Status,
    Tag,
    Trial,
)
from analyses.pages.history.labels import TAGGINGS
from analyses.savings.aggregation import columns_of
from engine.gpus import GPUS, LOCAL
from engine.models.presets import PRESETS
from engine.request import AnalysisRequest

MEMBERS = 24
PER_WORKLOAD = 5
"""Mean number of analyses per workload: people rerun one when something changes."""

TAGS = 4
_BATCH_SIZES = (16, 32, 48, 64, 96, 128, 192, 256, 300, 301)
_LINES = ("Tracing the training step.", "Searching for the largest batch.", "Done.")
_FIRST, _LAST = datetime(2024, 11, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
_MEASURED_ON = ("NVIDIA H200", "NVIDIA GeForce RTX 4090")
_PRECISIONS = ("fp32", "tf32", "bf16-mixed", "bf16-mixed", "fp16-mixed", "bf16-true")
_OPTIMIZERS = ("adamw", "adamw", "adamw", "sgd", "adafactor")
_ENDS = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.LOST)
_SHARES = (88, 7, 4, 1)
_CHUNK = 500


@dataclass(frozen=True)
class _Work:
    """A workload on a GPU that one member analyzes, and what it saves."""

    owner: User
    model: str
    gpu: str
    measured_gpu: str
    precision: str
    optimizer: str
    key: str
    speedup: float
    usd_per_year: float


def fill(count: int, result_file: str) -> dict[str, int]:
    """Store ``count`` analyses over two years; returns row counts.

    Args:
        count: Number of analyses.
        result_file: JSON of the result they all share; the columns differ.
    """
    result = json.loads(Path(result_file).read_text())
    chance = Random(1)  # noqa: S311  # no secret
    members = [User.objects.get_or_create(username=f"member-{n}")[0] for n in range(MEMBERS)]
    works = [_work(chance, members) for _ in range(max(1, count // PER_WORKLOAD))]
    Tag.objects.bulk_create(Tag(name=f"tag-{number}") for number in range(TAGS))
    tags = list(Tag.objects.all())
    first = _analysis(chance, works, Status.SUCCEEDED, 0, result)
    first.save()
    # The others copy the result within the database: writing its JSON each time takes minutes.
    table = Analysis._meta.db_table
    copied = RawSQL(f"SELECT result FROM {table} WHERE id = %s", [first.pk])  # noqa: S608, S611  # a model's
    for start in range(1, count, _CHUNK):
        rows = [
            _analysis(chance, works, chance.choices(_ENDS, _SHARES)[0], number / count, copied)
            for number in range(start, min(start + _CHUNK, count))
        ]
        with transaction.atomic():
            Analysis.objects.bulk_create(rows)
            _label(chance, rows, tags)
    _add_trials()
    _add_lines()
    _count_savings()
    _tidy()
    return {
        "analyses": Analysis.objects.count(),
        "trials": Trial.objects.count(),
        "workloads that count": CountedSavings.objects.count(),
        "of them adopted": CountedSavings.objects.filter(is_realised=True).count(),
    }


def _work(chance: Random, members: list[User]) -> _Work:
    is_measured = chance.random() < 0.3
    models = list(PRESETS)
    measured_gpu = chance.choice(_MEASURED_ON) if is_measured else ""
    chosen: dict[str, Any] = {
        "owner": chance.choice(members),
        "model": models[min(int(chance.expovariate(0.15)), len(models) - 1)],
        "gpu": LOCAL if is_measured else chance.choice(list(GPUS)),
        "precision": chance.choice(_PRECISIONS),
        "optimizer": chance.choice(_OPTIMIZERS),
    }
    speedup = max(1.0, chance.gauss(1.4, 0.5))
    return _Work(
        **chosen,
        measured_gpu=measured_gpu,
        # Workloads also differ in settings that have no column.
        key=hashlib.sha256(chance.randbytes(16)).hexdigest(),
        speedup=speedup,
        usd_per_year=(1 - 1 / speedup) * chance.uniform(100, 20_000),
    )


def _analysis(
    chance: Random, works: list[_Work], status: Status, share: float, result: object
) -> Analysis:
    """An analysis submitted after this share of the two years."""
    newest = int(share * len(works))
    work = works[chance.randint(max(0, newest - 2 * PER_WORKLOAD), newest)]
    queued_at = _FIRST + share * (_LAST - _FIRST)
    ended: dict[str, Any] = {"failure_code": "crashed", "failure_reason": "It crashed."}
    if status == Status.SUCCEEDED:
        is_adopted = work.usd_per_year > 0 and chance.random() < 0.1
        ended = {
            "result": result,
            "source": FigureSource.MEASURED if work.measured_gpu else FigureSource.PREDICTED,
            "largest_batch_size": chance.randint(64, 512),
            "recommended_batch_size": chance.randint(16, 256),
            "speedup": work.speedup,
            "has_gain": work.usd_per_year > 0,
            "usd_per_year": work.usd_per_year,
            "gpu_hours_per_year": work.usd_per_year / 2,
            "adopted_at": queued_at + timedelta(days=2) if is_adopted else None,
            "adopted_by": work.owner if is_adopted else None,
        }
    return Analysis(
        owner=work.owner,
        request=_request(work.model),
        model=work.model,
        gpu=work.gpu,
        measured_gpu=work.measured_gpu,
        precision=work.precision,
        optimizer=work.optimizer,
        workload_key=work.key,
        current_batch_size=16,
        status=status,
        node=f"node-{chance.randint(1, 4)}",
        attempt=1,
        queued_at=queued_at,
        started_at=queued_at + timedelta(seconds=1),
        finished_at=queued_at + timedelta(seconds=chance.uniform(2, 60)),
        **ended,
    )


@cache
def _request(model: str) -> dict[str, Any]:
    return AnalysisRequest.parse({"model": model, "gpu": "a10"}).to_dict()


def _label(chance: Random, rows: Sequence[Analysis], tags: Sequence[Tag]) -> None:
    """Tag one in ten and put a note on one in twenty."""
    through = TAGGINGS.model
    TAGGINGS.bulk_create(through(analysis=row, tag=chance.choice(tags)) for row in rows[::10])
    Note.objects.bulk_create(Note(analysis=row, text="As in chapter two.") for row in rows[::20])


def _add_trials() -> None:
    first = Analysis.objects.earliest("pk")
    Trial.objects.bulk_create(
        Trial(
            analysis=first,
            batch_size=size,
            fits=size <= 300,
            source=FigureSource.PREDICTED,
            peak_allocated_bytes=size * 70_000_000,
            peak_reserved_bytes=size * 72_000_000,
            device_used_bytes=size * 73_000_000,
            step_seconds=0.02 + 0.002 * size,
            samples_per_second=size / (0.02 + 0.002 * size),
            breakdown={"parameters": 437_935_104, "activations": size * 60_000_000},
        )
        for size in _BATCH_SIZES
    )
    _repeat_for_all(Trial, first)


def _add_lines() -> None:
    first = Analysis.objects.earliest("pk")
    LogLine.objects.bulk_create(LogLine(analysis=first, message=line) for line in _LINES)
    _repeat_for_all(LogLine, first)


def _repeat_for_all(model: type[Trial | LogLine], first: Analysis) -> None:
    """Copy one analysis's rows to all others, within the database: it makes a million."""
    names = [str(field.column) for field in model._meta.concrete_fields if not field.primary_key]
    columns = ", ".join(names)
    values = ", ".join("a.id" if name == "analysis_id" else f"t.{name}" for name in names)
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({columns}) SELECT {values} "  # noqa: S608  # names of our own
            f"FROM {Analysis._meta.db_table} a CROSS JOIN {table} t "
            "WHERE t.analysis_id = %s AND a.id <> %s ORDER BY a.id, t.id",
            [first.pk, first.pk],
        )


def _count_savings() -> None:
    """Do in bulk what :mod:`analyses.savings.aggregation` does one by one."""
    counting: dict[str, Analysis] = {}
    result = Analysis.objects.earliest("pk").result  # they all share it
    answered = Analysis.objects.filter(status=Status.SUCCEEDED).defer("request", "result")
    for analysis in answered.order_by("pk").iterator():
        key = analysis.workload_key
        analysis.result = result
        if analysis.adopted_at or key not in counting or not counting[key].adopted_at:
            counting[key] = analysis
    CountedSavings.objects.bulk_create(
        (CountedSavings(**columns_of(analysis)) for analysis in counting.values()),
        batch_size=_CHUNK,
    )


def _tidy() -> None:
    """Vacuum now instead of waiting for PostgreSQL's autovacuum; SQLite needs none."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")
