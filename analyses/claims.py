"""A worker's hold on an analysis, and every write of a worker.

Each is a conditional update on the claim's token, so a worker that was given up for lost can no
longer change anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from analyses import queue
from analyses.analysis_columns import answered
from analyses.engine_events import Failure
from analyses.lifecycle import move
from analyses.models import AT_WORK, Analysis, LogLine, Status, Trial
from engine import events
from engine.result import AnalysisResult
from engine.result import Trial as TriedBatch


class ClaimLost(Exception):
    """The analysis is no longer this worker's: it was given up for lost, or is final."""


@dataclass(frozen=True)
class Claim:
    """A worker's hold on one running analysis."""

    analysis_id: int
    token: str
    attempt: int = 1
    request_id: str = ""


@dataclass(frozen=True)
class Cancelled:
    """The end of an analysis that somebody did not want any more."""


@dataclass(frozen=True)
class Interrupted:
    """The worker has to stop; another one goes on."""


Outcome = AnalysisResult | Failure | Cancelled | Interrupted


def claim(
    analysis_id: int, node: str, device: str = "", environment: Mapping[str, str] | None = None
) -> Claim | None:
    """Take a queued analysis: it is running from now on.

    Args:
        analysis_id: Which.
        node: The name of the node that takes it.
        device: The UUID of the GPU that it measures on; held until the analysis ends.
        environment: What it runs with there.

    Returns:
        ``None`` where it is not queued, since another worker was first or it has been redelivered,
        and where something else is being measured on that GPU.
    """
    token = uuid.uuid4().hex
    this = Analysis.objects.filter(pk=analysis_id)
    try:
        with transaction.atomic():
            taken = move(
                this,
                Status.QUEUED,
                Status.RUNNING,
                claim_token=token,
                attempt=F("attempt") + 1,
                node=node,
                device=device,
                environment=dict(environment or {}),
            )
    except IntegrityError:
        return None
    if not taken:
        return None
    return Claim(analysis_id, token, *this.values_list("attempt", "request_id").get())


def heartbeat(claim: Claim) -> None:
    """Say that the analysis is still worked on.

    Raises:
        ClaimLost: As every write below.
    """
    if not _held(claim).update(heartbeat_at=Now()):
        raise _lost(claim)


def is_to_end(claim: Claim) -> bool:
    """Whether somebody wants the analysis cancelled, or has taken it away."""
    return not _held(claim).filter(status=Status.RUNNING).exists()


def record(claim: Claim, trials: Iterable[TriedBatch], lines: Iterable[events.Log]) -> None:
    """Store trials and log lines, in this order, as one transaction."""
    with transaction.atomic():
        heartbeat(claim)  # takes the row's lock, so the claim holds until the commit
        Trial.objects.bulk_create(
            Trial(analysis_id=claim.analysis_id, attempt=claim.attempt, **asdict(trial))
            for trial in trials
        )
        LogLine.objects.bulk_create(
            LogLine(analysis_id=claim.analysis_id, level=line.level, message=line.message)
            for line in lines
        )


def finish(claim: Claim, outcome: Outcome) -> None:
    """End the claim with its outcome; an analysis to be cancelled is cancelled whatever it is."""
    if not (_end(claim, outcome) or move(_held(claim), Status.CANCELLING, Status.CANCELLED)):
        raise _lost(claim)


def _end(claim: Claim, outcome: Outcome) -> int:
    held = _held(claim)
    match outcome:
        case AnalysisResult():
            return move(held, Status.RUNNING, Status.SUCCEEDED, **answered(outcome))
        case Failure(code, message):
            ended = {"failure_code": code, "failure_reason": message}
            return move(held, Status.RUNNING, Status.FAILED, **ended)
        case Cancelled():
            return 0  # from CANCELLING only
        case Interrupted():
            return _give_back(claim)


def _give_back(claim: Claim) -> int:
    """Queue the analysis again, for another worker or for this one when it is back."""
    with transaction.atomic():
        moved = move(_held(claim), Status.RUNNING, Status.QUEUED)
        if moved:
            analysis = Analysis.objects.get(pk=claim.analysis_id)
            say(analysis, f"The worker on {analysis.node} was stopped; another goes on with this.")
            queue.enqueue(analysis)
    return moved


def say(analysis: Analysis, message: str) -> None:
    """Add a line to the log of an analysis from outside the engine."""
    LogLine.objects.create(analysis=analysis, level="warning", message=message)


def _held(claim: Claim) -> QuerySet[Analysis]:
    return Analysis.objects.filter(
        pk=claim.analysis_id, claim_token=claim.token, status__in=AT_WORK
    )


def _lost(claim: Claim) -> ClaimLost:
    return ClaimLost(f"analysis {claim.analysis_id} is no longer this worker's")
