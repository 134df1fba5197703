"""The lab's current state in numbers, for monitoring, with few queries at any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import (
    Count,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    Min,
    Q,
    QuerySet,
    Sum,
)
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now
from django.utils import timezone

from analyses.jobs import timeouts
from analyses.jobs.keys import has_our_key, problem_of
from analyses.models import (
    AT_WORK,
    Analysis,
    Delivery,
    Job,
    JobKind,
    Node,
    Notification,
    Query,
    QueryStatus,
    Status,
)

WINDOW = timedelta(hours=1)
"""Time window for counts of ended analyses."""

STANDSTILL = timedelta(seconds=20)
"""Time in the queue that shows, with nothing running, that no worker takes an analysis."""

UNSENT = (Delivery.WAITING, Delivery.SENDING, Delivery.GIVEN_UP)
NODE_STATES = ("online", "draining", "problem", "offline")


@dataclass(frozen=True)
class Ended:
    """The lab's own analyses that have ended within :data:`WINDOW`; imported ones ran elsewhere.

    Attributes:
        by_status: Their numbers, by final status.
        failures: Numbers that failed or were lost, by the code of the reason.
        worked_on: Number that a worker ran; the others reused a stored result, or were
            cancelled before.
        wait_seconds: Sum of their times from queueing to the last worker's claim.
        run_seconds: Sum of their times from then until the end.
    """

    by_status: Mapping[str, int]
    failures: Mapping[str, int]
    worked_on: int
    wait_seconds: float
    run_seconds: float


@dataclass(frozen=True)
class LabState:
    """The lab at one moment.

    Attributes:
        analyses: Counts by status, as in the other counts below.
        oldest_wait_seconds: Wait of the oldest queued analysis; 0 if none is queued.
        lane_wait_seconds: Wait of the oldest job that is due, by lane; only lanes where one waits.
        ended: Recently ended analyses.
        nodes: Numbers by the states of :data:`NODE_STATES`.
        gpus: The GPUs of nodes that are alive.
        gpus_busy: Number of them that are measuring.
        notifications: Notifications not yet sent.
        lookups: Queries not yet deleted.
    """

    analyses: Mapping[str, int]
    oldest_wait_seconds: float
    lane_wait_seconds: Mapping[str, float]
    ended: Ended
    nodes: Mapping[str, int]
    gpus: int
    gpus_busy: int
    notifications: Mapping[str, int]
    lookups: Mapping[str, int]


def lab_state() -> LabState:
    """Read the lab's current state."""
    analyses, oldest = _analyses()
    nodes, gpus = _nodes()
    holding = Job.objects.filter(state__in=AT_WORK, device__in=gpus)
    return LabState(
        analyses=analyses,
        oldest_wait_seconds=(timezone.now() - oldest).total_seconds() if oldest else 0.0,
        lane_wait_seconds=_lane_waits(),
        ended=_ended(),
        nodes=nodes,
        gpus=len(gpus),
        gpus_busy=holding.count(),
        notifications=_all_of(
            UNSENT,
            Notification.objects.filter(status__in=UNSENT)
            .order_by()
            .values_list("status")
            .annotate(Count("pk")),
        ),
        lookups=_all_of(
            QueryStatus, Query.objects.order_by().values_list("status").annotate(Count("pk"))
        ),
    )


def _analyses() -> tuple[dict[str, int], datetime | None]:
    """Counts by status, from an index only: no row with its JSON is read."""
    rows = list(
        Analysis.objects.order_by()
        .values("status")
        .annotate(count=Count("pk"), oldest=Min("queued_at"))
    )
    oldest = next((row["oldest"] for row in rows if row["status"] == Status.QUEUED), None)
    return _all_of(Status, ((row["status"], row["count"]) for row in rows)), oldest


def _lane_waits() -> dict[str, float]:
    """Seconds since each job was due, by lane: a retry waits on purpose before.

    A node that is switched off checks itself once it is back, so that is not waited for.
    """
    due = Job.objects.filter(state=Status.QUEUED, not_before__lte=Now()).order_by()
    due = due.exclude(kind=JobKind.SELF_CHECK)
    oldest = due.values_list("lane").annotate(Min("not_before"))
    now = timezone.now()
    return {lane: max(0.0, (now - since).total_seconds()) for lane, since in oldest}


def _ended() -> Ended:
    rows = list(
        Analysis.objects.filter(finished_at__gte=Now() - WINDOW, push=None)
        .order_by()
        .values("status", "failure_code")
        .annotate(
            count=Count("pk"),
            started=Count("started_at"),
            waited=Sum(_between("queued_at", "started_at")),
            ran=Sum(_between("started_at", "finished_at")),
        )
    )
    by_status: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for row in rows:
        by_status[row["status"]] += row["count"]
        if row["status"] in (Status.FAILED, Status.LOST):
            failures[row["failure_code"]] += row["count"]
    return Ended(
        by_status,
        failures,
        sum(row["started"] for row in rows),
        sum(row["waited"].total_seconds() for row in rows if row["waited"]),
        sum(row["ran"].total_seconds() for row in rows if row["ran"]),
    )


def _between(first: str, last: str) -> ExpressionWrapper[CombinedExpression]:
    return ExpressionWrapper(F(last) - F(first), output_field=DurationField())


def _nodes() -> tuple[dict[str, int], set[str]]:
    """Nodes by state, and the GPU UUIDs of live nodes."""
    states: Counter[str] = Counter(dict.fromkeys(NODE_STATES, 0))
    gpus = set()
    alive = Q(heartbeat_at__gte=Now() - timeouts.STALE_AFTER)
    for node in Node.objects.annotate(is_alive=alive):
        if not node.is_alive:
            states["offline"] += 1
            continue
        states["problem" if problem_of(node) else "draining" if node.draining else "online"] += 1
        if node.gpu_uuid:
            gpus.add(node.gpu_uuid)
    return dict(states), gpus


def _all_of(words: Iterable[str], counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Counts for every value, including 0: a gap in a graph would look like an outage."""
    return dict.fromkeys((f"{word}" for word in words), 0) | dict(counts)


def queue_stands_still() -> bool:
    """Whether a queued analysis should have been claimed long ago."""
    since = Now() - STANDSTILL
    waiting = Analysis.objects.filter(status=Status.QUEUED, queued_at__lt=since)
    moving = Analysis.objects.filter(Q(status__in=AT_WORK) | Q(finished_at__gte=since))
    return waiting.filter(~Exists(moving)).exists()  # one query, however long they have waited


def nodes_alive() -> QuerySet[Node]:
    """The nodes with a live worker."""
    alive = Node.objects.filter(heartbeat_at__gte=Now() - timeouts.STALE_AFTER)
    return alive.select_related("check_job")


def nodes_online() -> QuerySet[Node]:
    """The live nodes with the site's ``SECRET_KEY``, which can be counted on."""
    return nodes_alive().filter(has_our_key())


def nodes() -> list[tuple[Node, list[Analysis]]]:
    """All nodes the lab has had, online ones first, each with its running work."""
    at_work: dict[str, list[Analysis]] = {}
    for analysis in Analysis.objects.filter(status__in=AT_WORK).select_related("owner"):
        at_work.setdefault(analysis.node, []).append(analysis)
    alive = set(nodes_alive().values_list("pk", flat=True))
    every = sorted(
        Node.objects.select_related("check_job"), key=lambda node: (node.pk not in alive, node.name)
    )
    return [(node, at_work.get(node.name, [])) for node in every]


def software_offered(gpu_name: str = "") -> dict[str, dict[str, str]]:
    """The versions that the nodes online offer, by the name of the environment.

    The nodes' own software has the empty name.

    Args:
        gpu_name: Only of nodes with this GPU; empty for any.
    """
    nodes = nodes_online().filter(gpu_name=gpu_name) if gpu_name else nodes_online()
    found: dict[str, dict[str, str]] = {}
    for node in nodes:
        found |= {"": node.versions} | node.environments
    return found


def nodes_with_gpu() -> QuerySet[Node]:
    """Online nodes that can measure on a GPU."""
    return nodes_online().exclude(gpu_name="")
