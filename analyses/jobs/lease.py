"""A worker's lease on a job, and every write of a worker.

Each is a conditional update on the lease's token, so a worker that was given up for lost can no
longer change anything. The lease is kept by writing: a worker that could not renew it in time,
since the database was away, ends its engine before another node takes the job, so that no GPU is
used twice.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from threading import Event
from time import monotonic

from django import db
from django.db import IntegrityError, connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from analyses.jobs import lifecycle, timeouts
from analyses.jobs.engine_output import Failure
from analyses.jobs.kinds import KINDS
from analyses.jobs.lifecycle import move
from analyses.models import AT_WORK, Job, LogLine, Query, Status, Trial
from analyses.stored_result import result_columns
from engine.events import Answer, Log
from engine.result import AnalysisResult
from engine.result import Trial as TriedBatch

logger = logging.getLogger(__name__)

_TRY_AGAIN_SECONDS = 0.5


class LeaseLost(Exception):
    """The job is no longer this worker's: it was given up for lost, or is final."""


class LeaseExpired(Exception):
    """The database has not taken a write for so long that the job may be another's."""


@dataclass(frozen=True)
class Lease:
    """A worker's hold on one running job; ``subject_id`` is the number of what it is about."""

    job_id: int
    token: str
    kind: str = ""
    subject_id: int = 0
    attempt: int = 1


@dataclass(frozen=True)
class Sent:
    """The end of a notification that has been delivered."""


@dataclass(frozen=True)
class Cancelled:
    """The end of a job that somebody does not want any more."""


@dataclass(frozen=True)
class Interrupted:
    """The worker has to stop; another one goes on."""


Outcome = AnalysisResult | Answer | Sent | Failure | Cancelled | Interrupted


def claim(
    job_id: int, node: str, device: str = "", environment: Mapping[str, str] | None = None
) -> Lease | None:
    """Take a queued job: it is running from now on.

    Args:
        job_id: Which.
        node: The name of the node that takes it.
        device: The UUID of the GPU that it measures on; held until the job ends.
        environment: What an analysis runs with there.

    Returns:
        ``None`` where it is not queued, since another worker was first or it has been delivered
        twice, and where something else is being measured on that GPU.
    """
    token = uuid.uuid4().hex
    this = Job.objects.filter(pk=job_id)
    job = this.first()
    if job is None:
        return None
    where = {"node": node, "environment": dict(environment or {})}
    subject = {name: where[name] for name in KINDS[job.kind].taken}
    held = {"token": token, "node": node, "device": device, "attempts": F("attempts") + 1}
    try:
        with transaction.atomic():
            taken = move(this, Status.QUEUED, Status.RUNNING, subject=subject, **held)
    except IntegrityError:
        return None
    return Lease(job_id, token, job.kind, job.subject_id, job.attempts + 1) if taken else None


def renew(lease: Lease) -> None:
    """Say that the job is still worked on.

    Raises:
        LeaseLost: As every write below.
    """
    if not _held(lease).update(heartbeat_at=Now()):
        raise _lost(lease)


def is_to_end(lease: Lease) -> bool:
    """Whether somebody wants the job cancelled, or has taken it away."""
    return not _held(lease).filter(state=Status.RUNNING).exists()


def record(lease: Lease, trials: Iterable[TriedBatch], lines: Iterable[Log]) -> None:
    """Store trials and log lines of an analysis, in this order, as one transaction."""
    with transaction.atomic():
        renew(lease)  # takes the row's lock, so the lease holds until the commit
        Trial.objects.bulk_create(
            Trial(analysis_id=lease.subject_id, attempt=lease.attempt, **asdict(trial))
            for trial in trials
        )
        LogLine.objects.bulk_create(
            LogLine(analysis_id=lease.subject_id, level=line.level, message=line.message)
            for line in lines
        )


def record_progress(lease: Lease, progress: str) -> None:
    """Store the last thing that the engine has said about a query."""
    with transaction.atomic():
        renew(lease)
        Query.objects.filter(pk=lease.subject_id).update(progress=progress)


def finish(lease: Lease, outcome: Outcome) -> None:
    """End the lease with its outcome; a job to be cancelled is cancelled whatever it is."""
    held = _held(lease)
    if not (_end(held, outcome) or move(held, Status.CANCELLING, Status.CANCELLED)):
        raise _lost(lease)


def _end(held: QuerySet[Job], outcome: Outcome) -> bool:
    columns: dict[str, object]
    match outcome:
        case AnalysisResult():
            columns = result_columns(outcome)
        case Answer(body):
            columns = {"answer": body}
        case Sent():
            columns = {"sent_at": Now(), "last_error": ""}
        case Failure():
            return lifecycle.fail(held, outcome) is not None
        case Cancelled():
            return False  # from CANCELLING only
        case Interrupted():
            return _give_back(held)
    return bool(move(held, Status.RUNNING, Status.SUCCEEDED, subject=columns))


def _give_back(held: QuerySet[Job]) -> bool:
    """Queue the job again, for another worker or for this one when it is back."""
    with transaction.atomic():
        job = held.filter(state=Status.RUNNING).select_for_update().first()
        if job is None:
            return False
        move(held, Status.RUNNING, Status.QUEUED)
        message = f"The worker on {job.node} was stopped; another goes on with this."
        KINDS[job.kind].say(job.subject_id, message)
    return True


def _held(lease: Lease) -> QuerySet[Job]:
    return Job.objects.filter(pk=lease.job_id, token=lease.token, state__in=AT_WORK)


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"job {lease.job_id} is no longer this worker's")


class Renewal:
    """Keeps a lease by writing; writes that fail are repeated until it has run out."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.renewed_at = monotonic()

    def write(self, work: Callable[[], None]) -> bool:
        """Try a write that renews the lease.

        Returns:
            Whether the database took it; if not, try again later.

        Raises:
            LeaseLost: The job is somebody else's.
            LeaseExpired: It may be by now.
        """
        begun_at = monotonic()
        try:
            work()
        except db.Error as error:
            self._endure(error)
            return False
        self.renewed_at = begun_at
        return True

    def write_at_last(self, work: Callable[[], None]) -> None:
        """Repeat a write until the database takes it.

        Raises:
            LeaseLost: The job is somebody else's.
            LeaseExpired: The database was away for too long.
        """
        pause = Event()
        while not self.write(work):
            pause.wait(_TRY_AGAIN_SECONDS)

    def is_to_end(self) -> bool:
        """Whether the job is to be cancelled, as far as the database can be asked."""
        try:
            return is_to_end(self.lease)
        except db.Error as error:
            self._endure(error)
            return False

    def _endure(self, error: db.Error) -> None:
        connection.close()  # a broken one must not be used for the next try
        if monotonic() - self.renewed_at > timeouts.LEASE_SECONDS:
            raise LeaseExpired(f"job {self.lease.job_id}: the database is away: {error}") from error
        logger.warning("job %d: trying again: %s", self.lease.job_id, error)
