"""Functions that the scale drill calls inside its labs: many nodes, a long queue, sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import override_settings
from django_q.conf import Conf
from django_q.signing import SignedPackage

from analyses.jobs import keys, lease, nodes, queue, recovery, retention
from analyses.models import AT_WORK, Analysis, Job, JobKind, Node, Status
from engine.gpus import LOCAL
from engine.gpus.driver import LocalGpu
from engine.interface.request import AnalysisRequest
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope

GPU = "NVIDIA H200"
_GIB = 2**30
_CHUNK = 1000
_WAITING_OR_AT_WORK = (Status.QUEUED, *AT_WORK)

Seconds = list[float]


def announce(count: int) -> None:
    """Announce ``count`` nodes, each with one GPU of the same kind."""
    Node.objects.all().delete()
    Node.objects.bulk_create(
        Node(
            name=f"node-{number}",
            gpu_name=GPU,
            gpu_uuid=f"GPU-{number}",
            gpu_total_bytes=139 * _GIB,
            versions=nodes.versions(),
            heartbeat_at=Now(),
            key=keys.key_fingerprint(),
        )
        for number in range(count)
    )


def claims(count: int, waiting: int) -> dict[str, Seconds]:
    """Claim jobs for one node after another, with ``waiting`` jobs each time, of many members.

    Returns:
        Seconds to choose a job, as each poll of a node's queue does, and to claim it.
    """
    found: dict[str, Seconds] = {"chosen": [], "claimed": []}
    for number in range(count):
        _make_wait(waiting)
        with _as_node(number):
            broker = queue.LabBroker(queue.WORKERS)
            begun = perf_counter()
            packages = broker.dequeue()
            chosen = perf_counter()
            if not packages:
                raise RuntimeError(f"none of {waiting:,} jobs was handed out")
            job = SignedPackage.loads(packages[0][1])["args"][0]
            environment = nodes.environment_here()
            to_claim = perf_counter()
            if lease.claim(job, nodes.here().name, nodes.here().gpu_uuid, environment) is None:
                raise RuntimeError(f"job {job} was not claimed")
            found["claimed"].append(perf_counter() - to_claim)
            found["chosen"].append(chosen - begun)
    forget_work()
    return found


def polls(count: int) -> Seconds:
    """Time each look of a node into a queue that has nothing for it."""
    with _as_node(0), patch.object(Conf, "POLL", 0):
        broker = queue.LabBroker(queue.WORKERS)
        return _timed(broker.dequeue, count)


def heartbeats(count: int) -> Seconds:
    """Time each heartbeat of a node, including the look for dead workers."""

    def beat() -> None:
        nodes.beat()
        recovery.recover()

    found = []
    for number in range(count):
        with _as_node(number):
            found += _timed(beat, 1)
    return found


def submits(count: int) -> Seconds:
    """Time each submission by the API, each of another member, in this process."""
    found = []
    for number in range(count):
        client = Client(SERVER_NAME="localhost")
        client.force_login(User.objects.get(username=f"member-{number}"))
        body = {"model": "bert", "gpu": "a10", "current_batch_size": 1 + number}
        begun = perf_counter()
        response = client.post("/api/v1/analyses/", body, content_type="application/json")
        found.append(perf_counter() - begun)
        if response.status_code != 201:
            raise RuntimeError(f"{response.status_code}: {response.content.decode()}")
    forget_work()
    return found


def make_tokens(count: int) -> list[str]:
    """A write token of each of the first members."""
    members = User.objects.filter(username__startswith="member-").order_by("pk")[:count]
    return [tokens.create(member, "scale", Scope.WRITE, 1)[1] for member in members]


def removals(batches: int, days: dict[str, int]) -> dict[str, dict[str, float]]:
    """Remove some batches by each rule of retention that is given its days.

    Returns:
        Rows and seconds by the rule's variable.
    """
    found = {}
    with override_settings(KEPT_DAYS=days):
        for rule in retention.RULES:
            if rule.setting in days:
                begun = perf_counter()
                rows = sum(rule.remove_some() for _ in range(batches))
                found[rule.setting] = {"rows": rows, "seconds": perf_counter() - begun}
    return found


def index_seconds() -> float:
    """Time the rebuilding of all indexes of analyses, as a migration builds new ones."""
    with connection.cursor() as cursor:
        begun = perf_counter()
        cursor.execute(f"REINDEX TABLE {Analysis._meta.db_table}")
        return perf_counter() - begun


def sizes() -> dict[str, dict[str, int]]:
    """Rows, and bytes of rows, of long values beside them and of each index, by table."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, n_live_tup, pg_relation_size(relid), pg_indexes_size(relid), "
            "pg_total_relation_size(relid) FROM pg_stat_user_tables ORDER BY 5 DESC"
        )
        return {
            name: {
                "rows": rows,
                "row_bytes": own,
                "long_value_bytes": total - own - indexes,
                "index_bytes": indexes,
            }
            for name, rows, own, indexes, total in cursor.fetchall()
        }


def index_sizes(table: str) -> dict[str, int]:
    """Bytes by index of a table."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indexrelname, pg_relation_size(indexrelid) FROM pg_stat_user_indexes "
            "WHERE relname = %s ORDER BY 2 DESC",
            [table],
        )
        return dict(cursor.fetchall())


def _timed(work: Callable[[], object], count: int) -> Seconds:
    found = []
    for _ in range(count):
        begun = perf_counter()
        work()
        found.append(perf_counter() - begun)
    return found


@contextmanager
def _as_node(number: int) -> Iterator[None]:
    """Act as one of the nodes that were announced."""
    gpu = LocalGpu(GPU, f"GPU-{number}", 139 * _GIB, "")
    here = nodes.Here(f"node-{number}", gpu, 1)
    with patch.object(nodes, "here", lambda: here):
        yield


def _make_wait(count: int) -> None:
    """Make ``count`` analyses wait for a GPU: those of all members in turn."""
    missing = count - Job.objects.filter(state=Status.QUEUED).count()
    owners = list(User.objects.filter(username__startswith="member-").order_by("pk"))
    request = AnalysisRequest.parse({"model": "bert", "gpu": LOCAL}).to_dict()
    columns: dict[str, Any] = {"request": request, "measured_gpu": GPU, "current_batch_size": 16}
    columns |= {name: request[name] for name in ("model", "gpu", "precision", "optimizer")}
    for start in range(0, missing, _CHUNK):
        numbers = range(start, min(start + _CHUNK, missing))
        with transaction.atomic():
            rows = Analysis.objects.bulk_create(
                Analysis(owner=owners[number % len(owners)], **columns) for number in numbers
            )
            Job.objects.bulk_create(
                Job(
                    kind=JobKind.ANALYSIS,
                    analysis=row,
                    lane=queue.lane_for(GPU),
                    key=keys.key_fingerprint(),
                )
                for row in rows
            )


def forget_work() -> None:
    """Delete what waits and runs, and start the next measurement from tidy tables."""
    states = (list(_WAITING_OR_AT_WORK),)
    with connection.cursor() as cursor:  # row by row, Django's own deletion takes minutes
        cursor.execute("DELETE FROM analyses_idempotencykey")
        cursor.execute("DELETE FROM analyses_job WHERE state = ANY(%s)", states)
        cursor.execute("DELETE FROM analyses_analysis WHERE status = ANY(%s)", states)
        cursor.execute("VACUUM ANALYZE analyses_job, analyses_analysis")
