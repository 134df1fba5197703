"""The queue: the table of jobs, and the broker that hands them to django-q2's workers.

A job is its own queue entry, so none can be lost or left over, and the queue is read from an index
without unpickling anything. django-q2 prefetches: with its own broker a task may wait in one node's
memory behind a long measurement while another node is idle. This broker only hands out jobs that a
free worker can start immediately. It also sends heartbeat tasks through the workers, since only a
task that arrives shows that they are not stuck.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from time import monotonic, sleep
from typing import NamedTuple
from uuid import uuid4

from django import db
from django.db.models import Min, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django_q.brokers import Broker
from django_q.conf import Conf
from django_q.signing import SignedPackage

from analyses.jobs import environments, nodes, supervisor, timeouts
from analyses.jobs.keys import key_fingerprint
from analyses.models import AT_WORK, Analysis, Job, JobKind, Node, Notification, Query, Status

logger = logging.getLogger(__name__)

PREDICTIONS, PLANS, NOTIFICATIONS = "predictions", "plans", "notifications"
INTERACTIVE = "interactive"
MEASUREMENTS = "measurements/"
"""Lanes; of the last there is one for each kind of GPU. None waits for another."""

SELF_CHECKS = "self-checks/"
"""One lane for each node. On a GPU, a check and a measurement wait for each other."""

WORKERS = "workers"
POOLS = (WORKERS, INTERACTIVE)
"""The pools of a node. The interactive one has a single worker, so the engine that has traced a
workload while someone types also gets their next query."""

RUN_JOB = "analyses.jobs.worker.run"

HANDED_OVER = timedelta(seconds=5)
"""Claim timeout: a job not claimed by then is handed out again."""

Package = tuple[int, str]
"""No number to acknowledge, and a signed task."""

ANOTHER_KEY = (
    "a job was queued with another SECRET_KEY than this worker's; if the GPUs page says that this "
    "node's is not the site's, set the site's, or the same MEMORYMARK_DATA_DIR"
)


def lane_for(measured_gpu: str) -> str:
    """The lane of an analysis: for a kind of GPU, or for all predictions."""
    return f"{MEASUREMENTS}{measured_gpu}" if measured_gpu else PREDICTIONS


def self_checks_of(node: str) -> str:
    """The lane of a node's self-checks, which no other node serves."""
    return f"{SELF_CHECKS}{node}"


def enqueue(subject: Analysis | Query | Notification | Node) -> Job:
    """Queue a job for a row, in the caller's transaction; for a node, its self-check."""
    match subject:
        case Analysis():
            lane, owner = lane_for(subject.measured_gpu), subject.owner_id
            job = Job(kind=JobKind.ANALYSIS, analysis=subject, lane=lane, owner_id=owner)
        case Query():
            lane = INTERACTIVE if subject.kind == JobKind.PREDICT else PLANS
            job = Job(kind=subject.kind, query=subject, lane=lane, priority=subject.for_pages)
        case Notification():
            job = Job(kind=JobKind.NOTIFICATION, notification=subject, lane=NOTIFICATIONS)
        case Node():
            lane = self_checks_of(subject.name)
            job = Job(kind=JobKind.SELF_CHECK, checked_node=subject, lane=lane)
    job.key = key_fingerprint()
    if isinstance(subject, (Analysis, Query)):
        job.software = subject.request.get("software") or ""
    job.save()
    return job


def lanes_of(pool: str, here: nodes.Here) -> dict[str, int]:
    """The lanes that a node's pool serves, and how many jobs of each run at the same time."""
    if pool == INTERACTIVE:
        return {INTERACTIVE: 1}
    lanes = {PREDICTIONS: here.prediction_workers, PLANS: 1}
    if here.gpu_name:
        lanes[lane_for(here.gpu_name)] = 1
    # Whichever worker is free sends notifications, and checks the node.
    return lanes | {NOTIFICATIONS: sum(lanes.values()), self_checks_of(here.name): 1}


def workers_of(pool: str, here: nodes.Here) -> int:
    """The number of workers in a node's pool; any free worker sends notifications."""
    lanes = lanes_of(pool, here)
    return lanes.get(NOTIFICATIONS, sum(lanes.values()))


def at_work_on(node: str) -> QuerySet[Job]:
    """The running jobs of a node's live workers."""
    fresh = Now() - timeouts.SILENT_AFTER
    return Job.objects.filter(node=node, state__in=AT_WORK, heartbeat_at__gte=fresh)


def has_free_worker(pool: str) -> bool:
    """Whether a worker of this node's pool should get a heartbeat task."""
    here = nodes.here()
    busy = at_work_on(here.name).filter(lane__in=lanes_of(pool, here)).count()
    return busy < workers_of(pool, here)


class _Waiting(NamedTuple):
    """The jobs that are due and alike in these; ``first`` is the id of the oldest."""

    lane: str
    priority: int
    owner: int | None
    software: str
    first: int


class LabBroker(Broker):  # type: ignore[misc]  # django-q2 has no annotations
    """Hands jobs to free workers, and otherwise a heartbeat task now and then."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(list_key)
        self._handed: int | None = None
        self._handed_at = self._sent_at = monotonic()
        self._complained = False
        self._turns: dict[tuple[str, int], float] = {}

    def ping(self) -> bool:
        return True

    def dequeue(self) -> list[Package] | None:
        """The next free worker's task; ``None`` after a short sleep if there is none."""
        try:
            if db.transaction.get_autocommit():  # a test's transaction keeps its connection
                db.close_old_connections()  # one may be stale since the last query
            package = self._next_job() or self._heartbeat()
        except db.Error:
            logger.exception("the queue could not be read; trying again")
            db.connections.close_all()  # do not reuse a broken connection for the next query
            sleep(1)
            return None
        if package is None:
            sleep(Conf.POLL)
            return None
        return [package]

    def _next_job(self) -> Package | None:
        if self._is_being_taken():
            return None
        here = nodes.here()
        due = Job.objects.filter(state=Status.QUEUED, not_before__lte=Now())
        # Almost every look ends here or at the next line, and does not read what waits.
        if not due.filter(lane__in=lanes_of(self.list_key, here)).exists():
            return None
        free = self._free(here)
        if not free or Node.objects.filter(name=here.name, draining=True).exists():
            return None
        number = self._next_of(due.filter(lane__in=free))
        if number is None or not due.filter(pk=number).update(not_before=Now() + HANDED_OVER):
            return None  # another node was faster
        job = Job.objects.get(pk=number)
        self._handed, self._handed_at = job.pk, monotonic()
        if job.owner_id:
            self._turns[job.lane, job.owner_id] = self._handed_at
        self._compare_key(job)
        return _package(f"job-{job.pk}", RUN_JOB, job.pk)

    def _next_of(self, due: QuerySet[Job]) -> int | None:
        """The first of the most urgent jobs; of analyses, that of the member whose turn it is.

        That is who has the fewest running, then whose last turn on this node is longest ago: many
        or long analyses of one member do not hold up the others'.
        """
        groups = due.order_by().values_list("lane", "priority", "owner", "software")
        waiting = [
            _Waiting(*group)
            for group in groups.annotate(Min("pk"))
            if not group[3] or environments.find(group[3])
        ]
        if not waiting:
            return None
        first = min(waiting, key=lambda group: (-group.priority, group.first))
        alike = [
            group
            for group in waiting
            if (group.lane, group.priority) == (first.lane, first.priority) and group.owner
        ]
        if len(alike) < 2:
            return first.first
        running = Job.objects.filter(lane=first.lane, state__in=AT_WORK)
        busy = Counter(running.values_list("owner", flat=True))
        turns = self._turns

        def turn(group: _Waiting) -> tuple[int, float, int]:
            owner = group.owner or 0
            return busy[owner], turns.get((group.lane, owner), 0.0), group.first

        return min(alike, key=turn).first

    def _is_being_taken(self) -> bool:
        """Whether a worker has not yet claimed its job, so that it does not count as busy."""
        if self._handed is None or monotonic() - self._handed_at > HANDED_OVER.total_seconds():
            return False
        if not Job.objects.filter(pk=self._handed, state=Status.QUEUED).exists():
            self._handed = None
        return self._handed is not None

    def _free(self, here: nodes.Here) -> list[str]:
        """The lanes from which a worker could take a job now."""
        limits = lanes_of(self.list_key, here)
        running = at_work_on(here.name).filter(lane__in=limits)
        busy = Counter(running.values_list("lane", flat=True))
        if busy.total() >= workers_of(self.list_key, here):
            return []
        free = [lane for lane, limit in limits.items() if busy[lane] < limit]
        if here.gpu_name and _is_measured_on(here.gpu_uuid):
            in_turn = (lane_for(here.gpu_name), self_checks_of(here.name))
            free = [lane for lane in free if lane not in in_turn]
        return free

    def _heartbeat(self) -> Package | None:
        if (
            monotonic() - self._sent_at < timeouts.HEARTBEAT_TASK_EVERY_SECONDS
            or self._is_being_taken()
        ):
            return None
        self._sent_at = monotonic()
        if not has_free_worker(self.list_key):
            return None  # it would wait behind a job, which shows as much
        return _package("heartbeat", supervisor.HEARTBEAT_TASK)

    def _compare_key(self, job: Job) -> None:
        """Log once that a key differs; the site, which has the right one, shows whose is wrong."""
        queued_by_a_node = job.kind == JobKind.NOTIFICATION
        if queued_by_a_node or job.key in ("", key_fingerprint()) or self._complained:
            return
        self._complained = True
        logger.error(ANOTHER_KEY)


def _is_measured_on(device: str) -> bool:
    """Whether any worker is measuring on a GPU."""
    return Job.objects.filter(device=device, state__in=AT_WORK).exists()


def _package(name: str, function: str, *arguments: int) -> Package:
    """A task in django-q2's format. A job keeps its own record, so the result is not saved."""
    task = {
        "id": uuid4().hex,
        "name": name,
        "func": function,
        "args": arguments,
        "kwargs": {},
        "started": timezone.now(),
        "save": False,
    }
    return 0, SignedPackage.dumps(task)
