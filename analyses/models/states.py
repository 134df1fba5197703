"""The states of work: those of a job, and the names that others have for them.

Whatever a worker does is a job, and a job has a :class:`Status`. Queries, notifications and
self-checks follow theirs under names of their own, which the API and pages have; each has its
translation here, next to the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from django.db import models


class Status(models.TextChoices):
    """The states of a job, and so of an analysis; see :mod:`analyses.jobs.lifecycle`."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    CANCELLING = "cancelling", "Cancelling"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"
    LOST = "lost", "Lost"


FINAL_STATUSES = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.LOST)

AT_WORK = (Status.RUNNING, Status.CANCELLING)
"""A worker holds it."""


class StatusGroup(StrEnum):
    """Statuses that are counted together, by the names of the CSV's columns."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNFINISHED = "unfinished"

    @classmethod
    def of(cls, status: str) -> StatusGroup:
        """The group of a status."""
        if status not in FINAL_STATUSES:
            return cls.UNFINISHED
        return cls.FAILED if status == Status.LOST else cls(status)


class QueryStatus(models.TextChoices):
    """The states of a query: those of its job, as the API names them."""

    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    ANSWERED = "answered", "Answered"
    FAILED = "failed", "Failed"
    DROPPED = "dropped", "Dropped"


OF_QUERY: Mapping[Status, QueryStatus] = {
    Status.QUEUED: QueryStatus.WAITING,
    Status.SUCCEEDED: QueryStatus.ANSWERED,
    Status.CANCELLED: QueryStatus.DROPPED,
    Status.LOST: QueryStatus.FAILED,
}
"""The names that a query has for its job's states, where they differ."""

SHARED = (QueryStatus.WAITING, QueryStatus.RUNNING, QueryStatus.ANSWERED)
"""An equal request joins a query in one of these states."""


class Delivery(models.TextChoices):
    """The states of a notification: those of its job, as the page names them."""

    WAITING = "waiting", "Waiting"
    SENDING = "sending", "Sending"
    SENT = "sent", "Sent"
    GIVEN_UP = "given_up", "Given up"


OF_NOTIFICATION: Mapping[Status, Delivery] = {
    Status.QUEUED: Delivery.WAITING,
    Status.RUNNING: Delivery.SENDING,
    Status.SUCCEEDED: Delivery.SENT,
    Status.FAILED: Delivery.GIVEN_UP,
    Status.LOST: Delivery.GIVEN_UP,
}
"""The names that a notification has for its job's states, where they differ."""


class CheckState(StrEnum):
    """The state of a node's self-check; the values are those of the API."""

    NOT_CHECKED = "not checked"
    WAITING = "waiting"
    CHECKING = "checking"
    CHECKED = "checked"
    PROBLEMS = "problems"
    FAILED = "failed"


OF_SELF_CHECK: Mapping[str, CheckState] = {
    Status.QUEUED: CheckState.WAITING,
    **dict.fromkeys(AT_WORK, CheckState.CHECKING),
}
"""The names that a self-check has for its job's states; once that has ended, its result decides."""
