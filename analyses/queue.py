"""The queue: django-q2's table, and a broker that hands out only what can start at once.

An entry carries an id only, that of an analysis or of a notification: its row is the truth.

django-q2 fetches ahead: with its own broker an entry may wait in one node's memory behind a long
measurement while another node has nothing to do. This one looks at what its node has at work first.
Predictions, the measurements on each kind of GPU and notifications are queues of their own, so none
waits for another. It also sends a canary through the workers, see :mod:`analyses.node_process`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from django import db
from django.core.signing import BadSignature
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signing import SignedPackage
from django_q.tasks import async_task

from analyses import canary, nodes, pace, selectors
from analyses.models import Analysis, Delivery, Node, Notification, Status

logger = logging.getLogger(__name__)

ANALYSIS, NOTIFICATION = "analyses.worker.run_analysis", "analyses.worker.deliver_notification"
"""What a worker is asked for, by the function that does it."""

PREDICTIONS, NOTIFICATIONS = "predictions", "notifications"
"""The names of the queues that there is one of."""

HANDED_OVER_SECONDS = 5.0
"""So long a worker may take to claim what it was handed, before more is handed out."""

_LOOKED_AT = 20
_KEY_LENGTH = 100

WRONG_KEY = (
    "an entry of the queue is signed with another SECRET_KEY; give this worker the site's "
    "SECRET_KEY, or the same MEMORYMARK_DATA_DIR"
)


@dataclass(frozen=True)
class Task:
    """What an entry asks for: one analysis or one notification.

    Attributes:
        func: :data:`ANALYSIS` or :data:`NOTIFICATION`.
        pk: The number of its row.
    """

    func: str
    pk: int

    def waits(self) -> bool:
        """Whether no worker has taken it yet."""
        if self.func == NOTIFICATION:
            due = Notification.objects.filter(status=Delivery.WAITING, due_at__lte=Now())
            return due.filter(pk=self.pk).exists()
        return Analysis.objects.filter(pk=self.pk, status=Status.QUEUED).exists()


Package = tuple[int, str]
"""The number of a queue entry, and its signed task."""


def queue_for(measured_gpu: str) -> str:
    """The name of the queue: that of a kind of GPU, or of all predictions."""
    return f"measurements/{measured_gpu}"[:_KEY_LENGTH] if measured_gpu else PREDICTIONS


def enqueue(analysis: Analysis) -> None:
    """Put an analysis into its queue, in the caller's transaction (the queue is a table)."""
    async_task(
        ANALYSIS,
        analysis.pk,
        task_name=f"analysis-{analysis.pk}",
        cluster=queue_for(analysis.measured_gpu),
    )


def enqueue_notification(notification: Notification) -> None:
    """Put a notification into the queue, in the caller's transaction."""
    async_task(
        NOTIFICATION,
        notification.pk,
        task_name=f"notification-{notification.pk}",
        cluster=NOTIFICATIONS,
    )


def task_of(entry: OrmQ) -> Task | None:
    """What an entry asks for; ``None`` where it cannot be read here."""
    try:
        task = SignedPackage.loads(entry.payload)
    except (BadSignature, TypeError, ValueError):
        return None
    return Task(task["func"], int(task["args"][0]))


def free_entries() -> QuerySet[OrmQ]:
    """The entries that no worker has in hand; one killed with an entry keeps it for a long time."""
    entries: QuerySet[OrmQ] = OrmQ.objects.filter(lock__lte=Now())
    return entries


def queued(func: str, entries: QuerySet[OrmQ]) -> set[int]:
    """The numbers of the analyses, or of the notifications, that have one of these entries."""
    tasks = (task_of(entry) for entry in entries)
    return {task.pk for task in tasks if task is not None and task.func == func}


def release_locked() -> None:
    """Let entries be taken at once that a pool had fetched but not begun when it ended.

    They would wait for the queue's retry time otherwise. Where another pool has such an entry in
    hand, it is delivered twice, which the claim makes harmless.
    """
    OrmQ.objects.filter(lock__gt=Now()).update(lock=timezone.now() - timedelta(seconds=1))


class LabBroker(ORM):  # type: ignore[misc]  # django-q2 has no annotations
    """Hands a worker a task when one is free for it, or else a canary now and then."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(list_key)
        self._handed: Task | None = None
        self._handed_at = self._sang_at = monotonic()
        self._unreadable: set[int] = set()

    def enqueue(self, task: str) -> int:
        """Store an entry, with the time of the database's clock."""
        entry = OrmQ.objects.create(key=self.list_key, payload=task, lock=Now())
        return int(entry.pk)

    def dequeue(self) -> list[Package] | None:
        """What the next free worker is to do; ``None`` after a short sleep if there is nothing."""
        try:
            self.get_connection()  # closes one that has grown stale
            package = self._next_task() or self._canary()
        except db.Error:
            logger.exception("the queue could not be read; trying again")
            db.connections.close_all()  # a broken one must not be used for the next look
            sleep(1)
            return None
        if package is None:
            sleep(Conf.POLL)
            return None
        return [package]

    def _next_task(self) -> Package | None:
        if self._is_being_taken():
            return None
        here = nodes.here()
        # Those signed with another key stay for whom they are for, and out of everybody's way.
        waiting = free_entries().filter(key__in=here_queues(here)).order_by("id")
        waiting = waiting.exclude(pk__in=self._unreadable)
        keys = set(waiting.values_list("key", flat=True).distinct()) if waiting.exists() else set()
        keys = {key for key in keys if self._is_free(key)}
        if not keys or Node.objects.filter(name=here.name, draining=True).exists():
            return None
        for entry in waiting.filter(key__in=keys)[:_LOOKED_AT]:
            if self._take(entry):
                return entry.pk, entry.payload
        return None

    def _take(self, entry: OrmQ) -> bool:
        task = task_of(entry)
        if task is None:
            self._complain()
            self._unreadable.add(entry.pk)
            return False
        free = free_entries().filter(pk=entry.pk)
        if not free.update(lock=Now() + timedelta(seconds=Conf.RETRY)):
            return False  # another node was faster
        self._handed, self._handed_at = task, monotonic()
        return True

    def _is_being_taken(self) -> bool:
        """Whether a worker has not yet taken what it was handed, so it does not show as busy."""
        if self._handed is None or monotonic() - self._handed_at > HANDED_OVER_SECONDS:
            return False
        if not self._handed.waits():
            self._handed = None
        return self._handed is not None

    def _is_free(self, key: str) -> bool:
        here = nodes.here()
        if selectors.busy_workers(here.name) >= here.workers:
            return False
        if key == NOTIFICATIONS:
            return True
        if key == PREDICTIONS:
            return selectors.predictions_at_work(here.name).count() < here.prediction_workers
        return not selectors.measurements_at_work(here.gpu_uuid).exists()

    def _canary(self) -> Package | None:
        if monotonic() - self._sang_at < pace.CANARY_EVERY_SECONDS or self._is_being_taken():
            return None
        self._sang_at = monotonic()
        here = nodes.here()
        if selectors.busy_workers(here.name) >= here.workers:
            return None  # it would wait behind a task; what that does shows enough
        task: dict[str, Any] = {
            "id": uuid4().hex,
            "name": "canary",
            "func": canary.TASK,
            "args": (),
            "kwargs": {},
            "started": timezone.now(),
            "save": False,
        }
        return 0, SignedPackage.dumps(task)

    def _complain(self) -> None:
        if not self._unreadable:
            logger.error(WRONG_KEY)
            Node.objects.filter(name=nodes.here().name).update(problem=WRONG_KEY)


def here_queues(here: nodes.Here) -> list[str]:
    """The queues that a node serves."""
    measurements = [queue_for(here.gpu_name)] if here.gpu_name else []
    return [PREDICTIONS, NOTIFICATIONS, *measurements]
