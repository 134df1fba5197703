"""A worker's lease on a job, and every write of a worker.

Each is a conditional update on the lease's token, so a worker given up as lost can no longer change
anything. Writing renews the lease. A worker that could not renew it in time, because the database
was unavailable, ends its engine before another node claims the job, so that no GPU is used twice.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from threading import Event
from time import monotonic

from django import db
from django.db import IntegrityError, connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from analyses.gpus.self_checks import Stored
from analyses.jobs import lifecycle, timeouts
from analyses.jobs.engine_output import KILLED, Failure
from analyses.jobs.kinds import KINDS
from analyses.jobs.lifecycle import move
from analyses.jobs.request_columns import chosen_columns
from analyses.models import AT_WORK, Job, JobKind, LogLine, Query, Status, Trial
from analyses.results.stored import result_columns
from engine.answer.ladder import Rung
from engine.events import Answer, Log
from engine.interface.result import AnalysisResult
from engine.interface.texts import TextResult
from engine.interface.trial import Trial as TriedBatch

logger = logging.getLogger(__name__)

_TRY_AGAIN_SECONDS = 0.5


class LeaseLost(Exception):
    """The job no longer belongs to this worker: it was given up as lost, or is final."""


class LeaseExpired(Exception):
    """The last write was too long ago: the job may belong to another worker."""


@dataclass(frozen=True)
class Lease:
    """A worker's hold on one running job; ``subject_id`` is the id of its subject."""

    job_id: int
    token: str
    kind: str = ""
    subject_id: int = 0
    attempt: int = 1


@dataclass(frozen=True)
class Sent:
    """The outcome of a delivered notification."""


@dataclass(frozen=True)
class Cancelled:
    """The outcome of a cancelled job."""


@dataclass(frozen=True)
class Interrupted:
    """The worker must stop; another one continues."""


Outcome = AnalysisResult | TextResult | Answer | Sent | Failure | Cancelled | Interrupted


def claim(
    job_id: int, node: str, device: str = "", environment: Mapping[str, str] | None = None
) -> Lease | None:
    """Claim a queued job, which is then running.

    Args:
        job_id: The job's id.
        node: The name of the claiming node.
        device: The UUID of the GPU it measures on, held until the job ends.
        environment: Versions that an analysis runs with there.

    Returns:
        ``None`` if it is not queued, because another worker was first or it was delivered twice, or
        if that GPU is in use.
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
    """Set the heartbeat of the job.

    Raises:
        LeaseLost: As every write below.
    """
    if not _held(lease).update(heartbeat_at=Now()):
        raise _lost(lease)


def is_to_end(lease: Lease) -> bool:
    """Whether the job is to be cancelled, or no longer belongs to this worker."""
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


def record_progress(lease: Lease, progress: str, rungs: Sequence[Rung] = ()) -> None:
    """Store the latest progress of a query, and the rungs of its ladder that were found so far."""
    columns: dict[str, object] = {"progress": progress}
    if rungs:
        columns["rungs"] = [rung.to_dict() for rung in rungs]
    with transaction.atomic():
        renew(lease)
        Query.objects.filter(pk=lease.subject_id).update(**columns)


def finish(lease: Lease, outcome: Outcome) -> None:
    """End the lease with an outcome; a job to be cancelled is cancelled whatever the outcome."""
    held = _held(lease)
    if not (_end(held, outcome, lease) or move(held, Status.CANCELLING, Status.CANCELLED)):
        raise _lost(lease)


def _end(held: QuerySet[Job], outcome: Outcome, lease: Lease) -> bool:
    columns: dict[str, object]
    match outcome:
        case AnalysisResult() | TextResult():
            columns = result_columns(outcome) | chosen_columns(lease.subject_id, outcome)
        case Answer(body) if lease.kind == JobKind.SELF_CHECK:
            columns = {"self_check": Stored.of_answer(body).to_dict()}
        case Answer(body):
            columns = {"answer": body, "rungs": []}
        case Sent():
            columns = {"sent_at": Now(), "last_error": ""}
        case Failure(code=code) if code == KILLED:
            return _was_killed(held, outcome)
        case Failure():
            return lifecycle.fail(held, outcome) is not None
        case Cancelled():
            return False  # from CANCELLING only
        case Interrupted():
            return _give_back(held)
    return bool(move(held, Status.RUNNING, Status.SUCCEEDED, subject=columns))


def _was_killed(held: QuerySet[Job], failure: Failure) -> bool:
    """Queue the job again, or fail it if that has happened before; its log has the reason."""
    with transaction.atomic():
        job = held.filter(state=Status.RUNNING).select_for_update().first()
        if job is None:
            return False
        if lifecycle.is_retried(job, Status.FAILED, failure.code):
            KINDS[job.kind].say(job.subject_id, f"{failure.message} It is tried once more.")
        lifecycle.fail(held, failure)
    return True


def _give_back(held: QuerySet[Job]) -> bool:
    """Queue the job again, for any worker."""
    with transaction.atomic():
        job = held.filter(state=Status.RUNNING).select_for_update().first()
        if job is None:
            return False
        move(held, Status.RUNNING, Status.QUEUED)
        message = f"The worker on {job.node} was stopped. Another one continues."
        KINDS[job.kind].say(job.subject_id, message)
    return True


def _held(lease: Lease) -> QuerySet[Job]:
    return Job.objects.filter(pk=lease.job_id, token=lease.token, state__in=AT_WORK)


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"job {lease.job_id} is no longer this worker's")


class Renewal:
    """Keeps a lease by writing; failed writes are retried until it expires."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.renewed_at = monotonic()

    def write(self, work: Callable[[], None]) -> bool:
        """Try a write that renews the lease.

        Returns:
            Whether the database took it; if not, try again later.

        Raises:
            LeaseLost: The job belongs to another worker.
            LeaseExpired: It may belong to another worker by now.
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
        """Retry a write until the database takes it.

        Raises:
            LeaseLost: The job belongs to another worker.
            LeaseExpired: The database was unavailable for too long.
        """
        pause = Event()
        while not self.write(work):
            pause.wait(_TRY_AGAIN_SECONDS)

    def is_to_end(self) -> bool:
        """Whether the job is to be cancelled; false if the database is unavailable."""
        try:
            return is_to_end(self.lease)
        except db.Error as error:
            self._endure(error)
            return False

    def _endure(self, error: db.Error) -> None:
        connection.close()  # do not reuse a broken connection for the retry
        if monotonic() - self.renewed_at > timeouts.LEASE_SECONDS:
            raise LeaseExpired(
                f"job {self.lease.job_id}: the database does not respond: {error}"
            ) from error
        logger.warning("job %d: trying again: %s", self.lease.job_id, error)
