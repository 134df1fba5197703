"""Takes jobs from dead workers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from analyses.jobs import lifecycle, plans, queue, unwanted
from analyses.jobs.engine_output import Failure
from analyses.jobs.kinds import KINDS
from analyses.jobs.lifecycle import move
from analyses.models import (
    AT_WORK,
    Analysis,
    Delivery,
    Job,
    JobKind,
    Notification,
    Query,
    QueryStatus,
    Status,
)

logger = logging.getLogger(__name__)

LOST = "worker_lost"

_UNFINISHED = (Status.QUEUED, *AT_WORK)
_UNANSWERED = (QueryStatus.WAITING, QueryStatus.RUNNING)
_UNSENT = (Delivery.WAITING, Delivery.SENDING)


@dataclass(frozen=True)
class Released:
    """Jobs that were running in another instance, and their state in this one.

    Attributes:
        analyses: Ids of analyses that were running; they are queued again.
        cancelled: Number that were being cancelled; they now are.
        queries: Number of running queries; they are queued again.
        notifications: Number of notifications being sent; they are sent again.
    """

    analyses: Sequence[int]
    cancelled: int
    queries: int
    notifications: int

    def messages(self) -> Iterator[str]:
        """One sentence per kind of job that was released."""
        if self.analyses:
            numbers = ", ".join(f"{number}" for number in self.analyses)
            yield f"Queued again, since they were running when the backup was made: {numbers}."
        if self.cancelled:
            yield f"Cancelled, since they were being cancelled: {self.cancelled:,} analyses."
        if self.queries:
            yield f"To be answered again: {self.queries:,} queries."
        if self.notifications:
            yield f"To be sent, perhaps a second time: {self.notifications:,} notifications."


@transaction.atomic
def release_all() -> Released:
    """Take every job from the workers of the instance that was backed up.

    None of them runs here, so this does not count as a loss; reported trials are kept.
    """
    cancelled = move(Job.objects.all(), Status.CANCELLING, Status.CANCELLED)
    running = list(Job.objects.filter(state=Status.RUNNING).order_by("pk"))
    for job in running:
        message = "Restored from a backup while this was running. It is queued again."
        KINDS[job.kind].say(job.subject_id, message)
    move(Job.objects.all(), Status.RUNNING, Status.QUEUED)
    analyses = [job.subject_id for job in running if job.kind == JobKind.ANALYSIS]
    notifications = sum(job.kind == JobKind.NOTIFICATION for job in running)
    queries = sum(job.query_id is not None for job in running)
    return Released(analyses, cancelled, queries, notifications)


def recover() -> None:
    """Clean up after dead workers and earlier versions; any node may do this at any time."""
    reap()
    refill()
    unwanted.tidy()
    plans.catch_up()


def refill() -> int:
    """Queue again what waits or runs without a job, since someone deleted rows of the queue.

    Reported trials are kept. A worker that still has such a job notices at its next write.

    Returns:
        The number of jobs.
    """
    waiting: list[Analysis | Query | Notification] = [
        *Analysis.objects.filter(job=None, status__in=_UNFINISHED).order_by("pk"),
        *Query.objects.filter(job=None, status__in=_UNANSWERED).order_by("pk"),
        *Notification.objects.filter(job=None, status__in=_UNSENT).order_by("pk"),
    ]
    for subject in waiting:
        try:
            with transaction.atomic():
                job = queue.enqueue(subject)
                KINDS[job.kind].repeat([subject.pk], Status.QUEUED, {})
                if subject.status == Status.CANCELLING:
                    move(Job.objects.filter(pk=job.pk), Status.QUEUED, Status.CANCELLED)
                else:
                    KINDS[job.kind].say(subject.pk, "Its job was deleted. It is queued again.")
        except IntegrityError:
            continue  # another node has just done the same, or it was deleted
        logger.warning("%s was missing in the queue", job)
    return len(waiting)


def reap() -> int:
    """End the leases of workers without a recent heartbeat; returns the number of jobs."""
    stale = Q()
    for name, kind in KINDS.items():
        stale |= Q(kind=name, heartbeat_at__lt=Now() - kind.stale_after)
    return _lose(Job.objects.filter(stale, state__in=AT_WORK))


def release(node: str, lane: str) -> int:
    """End the leases of a node's workers in a lane, which are known to be gone."""
    return _lose(Job.objects.filter(node=node, lane=lane, state__in=AT_WORK))


def _lose(held: QuerySet[Job]) -> int:
    """Cancel a job that was being cancelled; retry any other, or set it to lost after retries.

    Reported trials are kept, and the next worker continues from there.
    """
    if not held.exists():
        return 0
    count = move(held, Status.CANCELLING, Status.CANCELLED)
    for job in list(held.filter(state=Status.RUNNING)):
        reason = (
            f"The worker on {job.node or 'a node'} stopped without finishing this: the machine was "
            "switched off, or the process was killed. "
        )
        if lifecycle.is_retried(job, Status.LOST):
            reason += "It is tried once more."
        else:
            reason += "It happened more than once, so it is not tried again by itself."
        with transaction.atomic():
            this = held.filter(pk=job.pk, token=job.token)
            if lifecycle.fail(this, Failure(LOST, reason), Status.LOST) is None:
                continue  # it has just finished, or was deleted
            KINDS[job.kind].say(job.subject_id, reason)
        logger.warning("%s was lost by its worker on %s", job, job.node)
        count += 1
    return count
