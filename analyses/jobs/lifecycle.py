"""The life of a job: the states it can be in, and the only way from one to the next.

::

    queued ──> running ──> succeeded | failed | lost (its workers vanished, and no more is tried)
      │ │        │  └────> queued (its worker was stopped or vanished, or a failure is tried again)
      │ │        └───────> cancelling ──> cancelled
      │ └────────────────> cancelled (or nobody wants it any more)
      └──────────────────> succeeded (the store had the answer, or it was pushed with the request)

A final state is never left. What the job is about repeats its state in words of its own, which are
written here too, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from analyses.jobs.engine_output import Failure
from analyses.jobs.kinds import KINDS, Columns
from analyses.models import FINAL_STATUSES, Analysis, Job, Status
from analyses.savings.aggregation import recounting

NEXT: Mapping[Status, frozenset[Status]] = MappingProxyType(
    {
        Status.QUEUED: frozenset({Status.RUNNING, Status.CANCELLED, Status.SUCCEEDED}),
        Status.RUNNING: frozenset(
            {
                Status.QUEUED,
                Status.CANCELLING,
                Status.CANCELLED,
                Status.SUCCEEDED,
                Status.FAILED,
                Status.LOST,
            }
        ),
        Status.CANCELLING: frozenset({Status.CANCELLED}),
        Status.LOST: frozenset(),
        Status.SUCCEEDED: frozenset(),
        Status.FAILED: frozenset(),
        Status.CANCELLED: frozenset(),
    }
)


def move(
    jobs: QuerySet[Job],
    start: Status,
    end: Status,
    *,
    subject: Columns = MappingProxyType({}),
    **columns: object,
) -> int:
    """Move those of the jobs that are in one state to another; the rest stay as they are.

    Of several who try the same at once, one succeeds. The times come from the database's clock, so
    that machines whose clocks differ agree. With a final state of an analysis, its notifications
    are written too, and what its savings count, all or nothing.

    Args:
        jobs: What to move; more conditions may stand in it.
        start: The state they have to be in.
        end: The state they get.
        subject: Columns that change in what the jobs are about; a time goes before the clock's.
        columns: Columns of the jobs that change with the state.

    Returns:
        How many were moved.

    Raises:
        ValueError: If there is no way from ``start`` to ``end``.
    """
    if end not in NEXT[start]:
        raise ValueError(f"a job never goes from {start} to {end}")
    found = jobs.filter(state=start)
    with transaction.atomic(), _savings_counted(found, end):
        moved = list(found.order_by("pk").select_for_update(of=("self",)))
        if moved:
            changes = _times(end) | columns
            Job.objects.filter(pk__in=[job.pk for job in moved]).update(state=end, **changes)
        for name, kind in KINDS.items():
            if numbers := [job.subject_id for job in moved if job.kind == name]:
                kind.repeat(numbers, end, subject)
    return len(moved)


def fail(held: QuerySet[Job], failure: Failure, end: Status = Status.FAILED) -> Job | None:
    """End a running job that has failed or was lost, or let it be tried again after a pause.

    Args:
        held: The job, if it still is that of the worker that has failed.
        failure: Why, in words for whoever waits for it.
        end: ``FAILED``, or ``LOST`` where its worker has vanished.

    Returns:
        The job as it was before; ``None`` where it was not running any more.
    """
    job = held.filter(state=Status.RUNNING).first()
    if job is None:
        return None
    kind = KINDS[job.kind]
    if not is_retried(job, end):
        losses = F("losses") + int(end == Status.LOST)
        moved = move(held, Status.RUNNING, end, losses=losses, subject=kind.failed(failure))
    else:
        moved = move(
            held,
            Status.RUNNING,
            Status.QUEUED,
            losses=F("losses") + 1,
            not_before=Now() + kind.pauses[job.losses],
            subject=kind.failed(failure) if kind.retries_failures else {},
        )
    return job if moved else None


def is_retried(job: Job, end: Status) -> bool:
    """Whether a running job is tried again if it ends like this."""
    kind = KINDS[job.kind]
    return (end == Status.LOST or kind.retries_failures) and job.losses < len(kind.pauses)


def _times(end: Status) -> dict[str, object]:
    if end == Status.RUNNING:
        return {"started_at": Now(), "heartbeat_at": Now()}
    if end == Status.QUEUED:
        return {"started_at": None, "not_before": Now(), "token": ""}
    return {"finished_at": Now()} if end in FINAL_STATUSES else {}


@contextmanager
def _savings_counted(jobs: QuerySet[Job], end: Status) -> Iterator[None]:
    """Only an answer changes them; owners are locked before jobs and analyses, as everywhere."""
    if end != Status.SUCCEEDED:
        yield
        return
    with recounting(Analysis.objects.filter(job__in=jobs)):
        yield
