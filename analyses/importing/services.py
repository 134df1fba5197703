"""Stores pushed analyses: each once, whole, and as an analysis like any other from then on."""

from __future__ import annotations

from dataclasses import asdict, replace

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from analyses import log_context
from analyses.analysis_columns import answered, asked
from analyses.importing.document import Document
from analyses.lab.defaults import Settled, settle
from analyses.lifecycle import move
from analyses.models import Analysis, LogLine, Push, Status, Trial
from engine.answer import economics
from engine.result import AnalysisResult


class IdTaken(Exception):
    """Something else has been pushed with this id; the message says what to do."""


def store_pushed(member: User, document: Document) -> tuple[Analysis, bool]:
    """Store a pushed analysis as the member's.

    Returns:
        The analysis, and whether it is new: the same push twice stores one.

    Raises:
        IdTaken: If the id is that of another push.
    """
    try:
        with transaction.atomic():
            return _create(member, document), True
    except IntegrityError:
        earlier = Push.objects.select_related("analysis").filter(document_id=document.id).first()
        if earlier is None:
            raise
        if earlier.digest != document.digest or earlier.analysis.owner_id != member.pk:
            raise IdTaken(
                f"the id {document.id} is that of another push; give each a new one"
            ) from None
        return earlier.analysis, False


def _create(member: User, document: Document) -> Analysis:
    settled = settle(document.request, document.fields, document.measured_gpu)
    result = _counted_by(settled, document.result)
    columns = asked(settled, document.measured_gpu)
    columns |= {
        # It answers nobody else's question: what a lab's own engine computes it stands for itself.
        "question": "",
        "environment": {**document.environment, "node": document.host},
    }
    analysis = Analysis.objects.create(owner=member, request_id=log_context.request_id(), **columns)
    Push.objects.create(
        analysis=analysis,
        document_id=document.id,
        digest=document.digest,
        host=document.host,
        ran=document.ran,
    )
    Trial.objects.bulk_create(
        Trial(analysis=analysis, **asdict(trial)) for trial in document.result.trials
    )
    LogLine.objects.create(
        analysis=analysis,
        message=f"This ran on {document.host} by {document.ran}, and was pushed from there.",
    )
    move(
        Analysis.objects.filter(pk=analysis.pk),
        Status.QUEUED,
        Status.SUCCEEDED,
        started_at=document.started_at,
        finished_at=document.finished_at,
        **answered(result),
    )
    analysis.refresh_from_db()
    return analysis


def _counted_by(settled: Settled, result: AnalysisResult) -> AnalysisResult:
    """The result with savings by the assumptions that hold, whatever it came with."""
    ratio, low, high = result.speedup, result.speedup_low, result.speedup_high
    if ratio is None or low is None or high is None:
        return replace(result, savings=None)
    assumed = settled.request.assumptions
    gained = economics.Speedup(ratio, low, high)
    price = assumed.price_per_hour_usd or 0.0  # as the engine counts where nobody knows one
    return replace(result, savings=economics.savings(assumed, price, gained, result.source))
