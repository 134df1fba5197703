"""The life of a job: its states, and the only function that moves it between them.

::

    queued ──> running ──> succeeded | failed | lost (its workers died, and there is no retry)
      │ │        │  └────> queued (its worker stopped or died, or a failure is retried)
      │ │        └───────> cancelling ──> cancelled
      │ └────────────────> cancelled (or no one needs it any longer)
      └──────────────────> succeeded (a stored result was reused, or it was pushed)

A final state is never left. The job's subject has a copy of the state under its own names, written
here too, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from analyses.jobs.engine_output import KILLED, Failure
from analyses.jobs.kinds import KINDS, Columns
from analyses.jobs.plans import planned_by
from analyses.models import FINAL_STATUSES, Analysis, Job, JobKind, Query, Status
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
    """Move the jobs that are in one state to another; leave the others unchanged.

    Of several concurrent attempts, one succeeds. Times come from the database's clock, so that
    machines with different clocks agree. With the final state of an analysis, its notifications and
    savings are written too, all or nothing.

    Args:
        jobs: The jobs to move; the query set may have more conditions.
        start: The state they must be in.
        end: Their new state.
        subject: Columns of the subjects to change; a time overrides the clock's.
        columns: Columns of the jobs to change with the state.

    Returns:
        The number of jobs moved.

    Raises:
        ValueError: If there is no move from ``start`` to ``end``.
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
    """End a running job that failed or was lost, or queue it again after a pause.

    Args:
        held: The job, if it still belongs to the failed worker.
        failure: The reason, for people to read.
        end: ``FAILED``, or ``LOST`` if its worker died.

    Returns:
        The job as it was before; ``None`` if it was no longer running.
    """
    job = held.filter(state=Status.RUNNING).first()
    if job is None:
        return None
    kind = KINDS[job.kind]
    if not is_retried(job, end, failure.code):
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


def is_retried(job: Job, end: Status, code: str = "") -> bool:
    """Whether a running job is retried if it ends like this, with a failure of this code."""
    kind = KINDS[job.kind]
    comes_from_outside = end == Status.LOST or code == KILLED
    return (comes_from_outside or kind.retries_failures) and job.losses < len(kind.pauses)


def _times(end: Status) -> dict[str, object]:
    if end == Status.RUNNING:
        return {"started_at": Now(), "heartbeat_at": Now()}
    if end == Status.QUEUED:
        return {"started_at": None, "not_before": Now(), "token": ""}
    return {"finished_at": Now()} if end in FINAL_STATUSES else {}


@contextmanager
def _savings_counted(jobs: QuerySet[Job], end: Status) -> Iterator[None]:
    """Only a result or a plan changes savings; workloads are locked before jobs, as everywhere."""
    if end != Status.SUCCEEDED:
        yield
        return
    changing = Analysis.objects.filter(job__in=jobs)
    plans = Query.objects.filter(job__in=jobs.filter(kind=JobKind.PLAN))
    if decided := [row.pk for plan in plans for row in planned_by(plan)]:
        changing |= Analysis.objects.filter(pk__in=decided)
    with recounting(changing):
        yield
