"""Fills a lab with years of analyses, each with its trials, log and job.

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
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.models import Case, CharField, F, IntegerField, Model, QuerySet, Value, When
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import MD5, Cast, Concat, Substr

from analyses.jobs import keys, nodes, queue
from analyses.models import (
    Analysis,
    CountedSavings,
    FigureSource,
    Job,
    JobKind,
    LogLine,
    Note,
    Project,
    Status,
    Tag,
    Trial,
)
from analyses.pages.history.labels import TAGGINGS
from analyses.savings.aggregation import columns_of
from engine.gpus import GPUS, LOCAL
from engine.interface.request import AnalysisRequest
from engine.models.presets import PRESETS
from memorymark_site.accounts.models import Action, AuditEntry

MEMBERS, TRIALS = 24, 10
LARGEST_BATCH = 300
"""The largest batch of each; its trials are those around it."""

PER_WORKLOAD = 5
"""Mean number of analyses per workload: people rerun one when something changes."""

TAGS, PROJECTS = 4, 8
_LINES = ("Tracing the training step.", "Searching for the largest batch.", "Done.")
_FIRST, _LAST = datetime(2024, 11, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
_MEASURED_ON = ("NVIDIA H200", "NVIDIA GeForce RTX 4090")
_PRECISIONS = ("fp32", "tf32", "bf16-mixed", "bf16-mixed", "fp16-mixed", "bf16-true")
_OPTIMIZERS = ("adamw", "adamw", "adamw", "sgd", "adafactor")
_ENDS = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.LOST)
_SHARES = (88, 7, 4, 1)
_MOMENTS = ("queued_at", "started_at", "finished_at", "adopted_at")
_CHUNK = 500
_STRETCH = 10_000
"""Analyses made one by one; later stretches of time are copies of the first, with other workloads:
a database copies them ten times as fast."""


@dataclass(frozen=True)
class _Work:
    """A workload on a GPU that one member analyzes, and what it saves."""

    owner: User
    project: Project | None
    model: str
    gpu: str
    measured_gpu: str
    precision: str
    optimizer: str
    key: str
    speedup: float
    usd_per_year: float


def fill(
    count: int, result_file: str, members: int = MEMBERS, trials: int = TRIALS
) -> dict[str, int]:
    """Store ``count`` analyses over two years; returns row counts.

    Args:
        count: Number of analyses.
        result_file: JSON of the result they all share; the columns differ.
        members: Number of members that own them.
        trials: Number of trials of each.
    """
    result = json.loads(Path(result_file).read_text())
    chance = Random(1)  # noqa: S311  # no secret
    owners = [User.objects.get_or_create(username=f"member-{n}")[0] for n in range(members)]
    User.objects.filter(pk=owners[0].pk).update(is_staff=True)  # an admin sees the audit log
    Project.objects.bulk_create(Project(name=f"project-{number}") for number in range(PROJECTS))
    projects = [None, *Project.objects.all()]
    works = [_work(chance, owners, projects) for _ in range(max(1, count // PER_WORKLOAD))]
    Tag.objects.bulk_create(Tag(name=f"tag-{number}") for number in range(TAGS))
    tags = list(Tag.objects.all())
    first = _analysis(chance, works, Status.SUCCEEDED, 0, result)
    first.save()
    # The others copy the result within the database: writing its JSON each time takes minutes.
    table = Analysis._meta.db_table
    copied = RawSQL(f"SELECT result FROM {table} WHERE id = %s", [first.pk])  # noqa: S608, S611  # a model's
    stretch = min(count, _STRETCH)
    for start in range(1, stretch, _CHUNK):
        rows = [
            _analysis(chance, works, chance.choices(_ENDS, _SHARES)[0], number / count, copied)
            for number in range(start, min(start + _CHUNK, stretch))
        ]
        with transaction.atomic():
            Analysis.objects.bulk_create(rows)
            _label(chance, rows, tags)
    for start in range(stretch, count, stretch):
        _repeat(start, min(stretch, count - start), start / count)
    _add_trials(trials)
    _add_lines()
    _add_jobs()
    _audit()
    _count_savings()
    _tidy()
    return {
        "members": len(owners),
        "analyses": Analysis.objects.count(),
        "trials": Trial.objects.count(),
        "jobs": Job.objects.count(),
        "workloads that count": CountedSavings.objects.count(),
        "of them adopted": CountedSavings.objects.filter(is_realised=True).count(),
    }


def _work(chance: Random, owners: list[User], projects: list[Project | None]) -> _Work:
    is_measured = chance.random() < 0.3
    models = list(PRESETS)
    measured_gpu = chance.choice(_MEASURED_ON) if is_measured else ""
    chosen: dict[str, Any] = {
        "owner": chance.choice(owners),
        "project": chance.choice(projects),
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
        project=work.project,
        request=_request(work.model),
        model=work.model,
        gpu=work.gpu,
        measured_gpu=work.measured_gpu,
        precision=work.precision,
        optimizer=work.optimizer,
        workload_key=work.key,
        request_hash=hashlib.sha256(chance.randbytes(16)).hexdigest(),
        environment=_environment(),
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


@cache
def _environment() -> dict[str, str]:
    return nodes.environment_here()


def _label(chance: Random, rows: Sequence[Analysis], tags: Sequence[Tag]) -> None:
    """Tag one in ten and put a note on one in twenty."""
    through = TAGGINGS.model
    TAGGINGS.bulk_create(through(analysis=row, tag=chance.choice(tags)) for row in rows[::10])
    Note.objects.bulk_create(Note(analysis=row, text="As in chapter two.") for row in rows[::20])


def _repeat(start: int, length: int, share: float) -> None:
    """Copy the first stretch of time to a later one, as analyses of other workloads.

    Args:
        start: Number of analyses before it.
        length: Number to copy.
        share: After which share of the two years it begins.
    """
    rows = Analysis.objects.filter(pk__lte=length).order_by("pk")
    later = share * (_LAST - _FIRST)
    with transaction.atomic():
        _insert(
            Analysis,
            rows,
            id=F("pk") + start,
            **{name: F(name) + later for name in _MOMENTS},
            **{name: _other(name, start) for name in ("workload_key", "request_hash")},
        )
        labelled = {"analysis_id": F("analysis_id") + start}
        for model in (TAGGINGS.model, Note):
            found = model._base_manager.filter(analysis__lte=length).order_by("analysis")
            _insert(model, found, **labelled)


def _other(name: str, start: int) -> Combinable:
    """Another hash of the same length, made from the one in this column."""
    return Concat(MD5(Concat(name, Value(str(start)))), Substr(name, 33))


def _insert(model: type[Model], rows: QuerySet[Any], **changed: Any) -> None:
    """Store copies of these rows within the database, with some columns changed.

    Args:
        model: Model to store.
        rows: Rows to copy.
        changed: Values by column. Without one, the database gives a copy its own id.
    """
    columns = {
        str(field.column): changed.get(str(field.column), F(field.attname))
        for field in model._meta.concrete_fields
        if field.column in changed or not field.primary_key
    }
    named = {f"new_{column}": value for column, value in columns.items()}
    sql, values = rows.annotate(**named).values_list(*named).query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {model._meta.db_table} ({', '.join(columns)}) {sql}", values)


def _add_trials(count: int) -> None:
    first = Analysis.objects.earliest("pk")
    Trial.objects.bulk_create(
        Trial(
            analysis=first,
            batch_size=size,
            fits=size <= LARGEST_BATCH,
            source=FigureSource.PREDICTED,
            peak_allocated_bytes=size * 70_000_000,
            peak_reserved_bytes=size * 72_000_000,
            device_used_bytes=size * 73_000_000,
            step_seconds=0.02 + 0.002 * size,
            samples_per_second=size / (0.02 + 0.002 * size),
            breakdown={"parameters": 437_935_104, "activations": size * 60_000_000},
        )
        for size in range(LARGEST_BATCH + 2 - count, LARGEST_BATCH + 2)
    )
    _copy_to_all(Trial, first)


def _add_lines() -> None:
    first = Analysis.objects.earliest("pk")
    LogLine.objects.bulk_create(LogLine(analysis=first, message=line) for line in _LINES)
    _copy_to_all(LogLine, first)


def _copy_to_all(model: type[Trial | LogLine], first: Analysis) -> None:
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


def _add_jobs() -> None:
    """The ended job of each analysis."""
    text = CharField()
    lane = Case(
        When(measured_gpu="", then=Value(queue.PREDICTIONS)),
        default=Concat(Value(queue.MEASUREMENTS), "measured_gpu"),
    )
    device = Case(When(measured_gpu="", then=Value("")), default=Concat(Value("GPU-"), "node"))
    _insert(
        Job,
        Analysis.objects.order_by("pk"),
        kind=Value(JobKind.ANALYSIS.value),
        lane=lane,
        priority=Value(0),
        state=F("status"),
        not_before=F("queued_at"),
        key=Value(keys.key_fingerprint()),
        token=MD5(Cast("pk", text)),
        device=device,
        heartbeat_at=F("finished_at"),
        attempts=F("attempt"),
        losses=Value(0),
        analysis_id=F("pk"),
        query_id=Value(None, IntegerField()),
        notification_id=Value(None, IntegerField()),
        checked_node_id=Value(None, IntegerField()),
    )


def _audit() -> None:
    """The entry of each adoption."""
    _insert(
        AuditEntry,
        Analysis.objects.exclude(adopted_at=None).order_by("adopted_at"),
        at=F("adopted_at"),
        actor_id=F("adopted_by"),
        actor_name=F("adopted_by__username"),
        action=Value(Action.ADOPTED.value),
        what=Concat(Value("analysis "), Cast("pk", CharField())),
        before=Value(""),
        after=Value(""),
    )


def _count_savings() -> None:
    """Do in bulk what :mod:`analyses.savings.aggregation` does one by one."""
    counting: dict[str, tuple[int, bool]] = {}
    answered = Analysis.objects.filter(status=Status.SUCCEEDED).order_by("pk")
    for pk, key, adopted_at in answered.values_list("pk", "workload_key", "adopted_at").iterator():
        if adopted_at or not counting.get(key, (0, False))[1]:
            counting[key] = pk, bool(adopted_at)
    result = Analysis.objects.earliest("pk").result  # they all share it
    chosen = sorted(pk for pk, _ in counting.values())
    for start in range(0, len(chosen), _CHUNK):
        found = Analysis.objects.defer("request", "result").in_bulk(chosen[start : start + _CHUNK])
        for analysis in found.values():
            analysis.result = result
        CountedSavings.objects.bulk_create(
            CountedSavings(**columns_of(analysis)) for analysis in found.values()
        )


def _tidy() -> None:
    """Number new analyses from the last one on, and vacuum instead of waiting for autovacuum.

    SQLite needs neither.
    """
    with connection.cursor() as cursor:
        for sql in connection.ops.sequence_reset_sql(no_style(), [Analysis]):
            cursor.execute(sql)
        if connection.vendor == "postgresql":
            cursor.execute("VACUUM ANALYZE")
