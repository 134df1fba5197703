"""Every write to an analysis. Its row is the truth, and a final state is never left.

A worker holds an analysis by a claim: each of its writes is a conditional update on the claim's
token, so a worker that was given up for lost can no longer change anything.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from django_q.tasks import async_task

from analyses import selectors
from analyses.engine_events import storable
from analyses.models import Analysis, LogLine, Status, Trial
from engine import events
from engine.errors import InvalidInput
from engine.gpus import LOCAL
from engine.request import AnalysisRequest
from engine.result import AnalysisResult
from engine.result import Trial as TriedBatch

TASK = "analyses.worker.run_analysis"

NO_GPU = (
    "no machine of this lab with a GPU is online to measure on; "
    "start a worker there, or choose a GPU by name for a prediction"
)


class ClaimLost(Exception):
    """The analysis is no longer this worker's: it was given up for lost, or is final."""


@dataclass(frozen=True)
class Claim:
    """A worker's hold on one running analysis."""

    analysis_id: int
    token: str


def submit(owner: User, fields: Mapping[str, object]) -> Analysis:
    """Store a new analysis and queue it, both or neither.

    Args:
        owner: The member who asks.
        fields: The flat, untrusted fields of :class:`engine.request.AnalysisRequest`.

    Raises:
        InvalidInput: With a message for each wrong field; nothing is stored.
    """
    request = AnalysisRequest.parse(fields)
    if request.gpu == LOCAL and not selectors.nodes_with_gpu().exists():
        raise InvalidInput({"gpu": NO_GPU})
    workload = request.workload
    _check_storable(workload.config)
    with transaction.atomic():
        analysis = Analysis.objects.create(
            owner=owner,
            request=request.to_dict(),
            model=workload.model,
            gpu=request.gpu,
            precision=workload.precision,
            optimizer=workload.optimizer,
            current_batch_size=request.current_batch_size,
        )
        enqueue(analysis.pk)
    return analysis


def _check_storable(config: Mapping[str, object] | None) -> None:
    """Refuse texts in a config that a database refuses; a model's name cannot hold them."""
    text = json.dumps(config, ensure_ascii=False)
    if "\\u0000" in text or storable(text) != text:
        raise InvalidInput({"config": "it has a NUL or half a surrogate pair in a text; remove it"})


def enqueue(analysis_id: int) -> None:
    """Put an analysis into the queue, in the caller's transaction (the queue is a table)."""
    async_task(TASK, analysis_id, task_name=f"analysis-{analysis_id}")


def claim(analysis_id: int) -> Claim | None:
    """Take a queued analysis: it is running from now on.

    Returns:
        ``None`` where it is not queued: another worker was first, or it has been redelivered.
    """
    token, now = uuid.uuid4().hex, timezone.now()
    taken = Analysis.objects.filter(pk=analysis_id, status=Status.QUEUED).update(
        status=Status.RUNNING, claim_token=token, started_at=now, heartbeat_at=now
    )
    return Claim(analysis_id, token) if taken else None


def heartbeat(claim: Claim) -> None:
    """Say that the analysis is still worked on.

    Raises:
        ClaimLost: As every write below.
    """
    _write(claim, heartbeat_at=timezone.now())


def record(claim: Claim, trials: Iterable[TriedBatch], lines: Iterable[events.Log]) -> None:
    """Store trials and log lines, in this order, as one transaction."""
    with transaction.atomic():
        heartbeat(claim)  # takes the row's lock, so the claim holds until the commit
        Trial.objects.bulk_create(
            Trial(analysis_id=claim.analysis_id, **asdict(trial)) for trial in trials
        )
        LogLine.objects.bulk_create(
            LogLine(analysis_id=claim.analysis_id, level=line.level, message=line.message)
            for line in lines
        )


def succeed(claim: Claim, result: AnalysisResult) -> None:
    """Store the answer."""
    _write(
        claim,
        status=Status.SUCCEEDED,
        finished_at=timezone.now(),
        result=result.to_dict(),
        source=result.source,
        largest_batch_size=result.largest_batch_size,
        recommended_batch_size=result.recommended_batch_size,
        speedup=result.speedup,
        usd_per_year=result.savings and result.savings.usd_per_year,
    )


def fail(claim: Claim, code: str, reason: str) -> None:
    """End the analysis with a reason, in words for a person."""
    _write(
        claim,
        status=Status.FAILED,
        finished_at=timezone.now(),
        failure_code=code,
        failure_reason=reason,
    )


def _write(claim: Claim, **values: object) -> None:
    changed = Analysis.objects.filter(
        pk=claim.analysis_id, status=Status.RUNNING, claim_token=claim.token
    ).update(**values)
    if not changed:
        raise ClaimLost(f"analysis {claim.analysis_id} is no longer this worker's")
