"""Every write to an analysis. Its row is the truth, and a final state is never left.

A worker holds an analysis by a claim: each of its writes is a conditional update on the claim's
token, so a worker that was given up for lost can no longer change anything.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from analyses import log_context, pace, queue, selectors, store
from analyses.engine_events import Failure, storable
from analyses.lab.defaults import Settled, settle
from analyses.lifecycle import move
from analyses.models import AT_WORK, Analysis, LogLine, Status, Trial
from analyses.savings.counting import counted_anew
from analyses.savings.workload_key import workload_key
from engine import events
from engine.errors import InvalidInput
from engine.gpus import LOCAL
from engine.request import AnalysisRequest
from engine.result import AnalysisResult
from engine.result import Trial as TriedBatch
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

logger = logging.getLogger(__name__)

NO_GPU = (
    "no machine of this lab with a GPU is online to measure on; "
    "start a worker there, or choose a GPU by name for a prediction"
)
CANCELLED = "cancelled"


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


def submit(owner: User, fields: Mapping[str, object], *, anew: bool = False) -> Analysis:
    """Store a new analysis and queue it, both or neither; or answer it from the store.

    Args:
        owner: The member who asks.
        fields: The flat, untrusted fields of :class:`engine.request.AnalysisRequest`. The GPU may
            be ``local:NAME`` besides, a kind of GPU that one of the lab's nodes has. Hours, runs
            and price that are left out are those of the lab.
        anew: Whether to work on it even if the store has the answer.

    Raises:
        InvalidInput: With a message for each wrong field; nothing is stored.
    """
    given, wanted_gpu = split_gpu(fields)
    request = AnalysisRequest.parse(given)
    kind = measured_gpu(wanted_gpu) if request.gpu == LOCAL else ""
    check_storable(request.workload.config)
    settled = settle(request, given, kind)
    with transaction.atomic():
        analysis = Analysis.objects.create(
            owner=owner, request_id=log_context.request_id(), **asked(settled, kind)
        )
        if anew or not store.answer(analysis):
            queue.enqueue(analysis)
    with log_context.of_analysis(analysis.pk, analysis.request_id):
        logger.info("submitted by member %d: %s on %s", owner.pk, analysis.model, analysis.gpu)
    return analysis


def run_again(analysis: Analysis, member: User) -> Analysis:
    """Ask the question of an analysis once more, in a member's name; it is worked on anew.

    Raises:
        InvalidInput: If it cannot be asked any more, such as for want of a node with that GPU.
    """
    gpu = f"{LOCAL}:{analysis.measured_gpu}" if analysis.measured_gpu else analysis.gpu
    return submit(member, {**analysis.request, "gpu": gpu}, anew=True)


def asked(settled: Settled, measured_gpu: str = "") -> dict[str, object]:
    """The columns of an analysis that asks this."""
    request = settled.request
    workload, stored = request.workload, request.to_dict()
    return {
        "request": stored,
        "assumed_by": settled.assumed_by,
        "model": workload.model,
        "gpu": request.gpu,
        "precision": workload.precision,
        "optimizer": workload.optimizer,
        "current_batch_size": request.current_batch_size,
        "question": store.question_of(request),
        "measured_gpu": measured_gpu,
        "workload_key": workload_key(stored, measured_gpu),
    }


def split_gpu(fields: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """The fields as the engine knows them, and the kind of GPU to measure on."""
    gpu = fields.get("gpu")
    if not isinstance(gpu, str) or not gpu.startswith(f"{LOCAL}:"):
        return fields, ""
    return {**fields, "gpu": LOCAL}, gpu.removeprefix(f"{LOCAL}:")


def measured_gpu(wanted: str) -> str:
    """The kind of GPU to measure on: the one wanted, or the only one there is."""
    kinds = sorted(set(selectors.nodes_with_gpu().values_list("gpu_name", flat=True)))
    if not kinds:
        raise InvalidInput({"gpu": NO_GPU})
    choices = ", ".join(f"{LOCAL}:{kind}" for kind in kinds)
    if not wanted and len(kinds) > 1:
        raise InvalidInput({"gpu": f"this lab has several kinds of GPU; choose one: {choices}"})
    if wanted and wanted not in kinds:
        raise InvalidInput({"gpu": f"no node with such a GPU is online; there is {choices}"})
    return wanted or kinds[0]


def check_storable(config: Mapping[str, object] | None) -> None:
    """Refuse texts in a config that a database refuses; a model's name cannot hold them."""
    text = json.dumps(config, ensure_ascii=False)
    if "\\u0000" in text or storable(text) != text:
        raise InvalidInput({"config": "it has a NUL or half a surrogate pair in a text; remove it"})


def cancel(analysis: Analysis, member: User) -> bool:
    """Ask for the end of an analysis; it ends at once if no worker is alive that holds it.

    Returns:
        Whether that changed anything: it does not where the analysis is final or being cancelled.
    """
    reason = f"Cancelled by {member.get_username()}."
    ended = {"failure_code": CANCELLED, "failure_reason": reason, "cancelled_by": member}
    this = Analysis.objects.filter(pk=analysis.pk)
    silent = this.filter(heartbeat_at__lt=Now() - pace.SILENT_AFTER)
    return bool(
        move(this, Status.QUEUED, Status.CANCELLED, **ended)
        or move(silent, Status.RUNNING, Status.CANCELLED, **ended)
        or move(this, Status.RUNNING, Status.CANCELLING, **ended)
    )


def adopt(analysis: Analysis, member: User) -> bool:
    """Note that the recommended batch is trained with: its savings are realised from now on.

    Returns:
        Whether that changed anything: it does not without a recommendation, or a second time.
    """
    if not selectors.can_be_adopted(analysis):
        return False
    still_open = Analysis.objects.filter(pk=analysis.pk, adopted_at__isnull=True)
    with counted_anew(still_open):
        changed = bool(still_open.update(adopted_at=Now(), adopted_by=member))
        if changed:
            audit.note(member, Action.ADOPTED, str(analysis))
    return changed


def take_back(analysis: Analysis, member: User) -> bool:
    """Note that the recommended batch is not trained with after all.

    Returns:
        Whether that changed anything.
    """
    adopted = Analysis.objects.filter(pk=analysis.pk, adopted_at__isnull=False)
    with counted_anew(adopted):
        changed = bool(adopted.update(adopted_at=None, adopted_by=None))
        if changed:
            audit.note(member, Action.ADOPTION_TAKEN_BACK, str(analysis))
    return changed


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


def answered(result: AnalysisResult) -> dict[str, object]:
    """The columns of an analysis that has this answer."""
    return {
        "result": result.to_dict(),
        "source": result.source,
        "largest_batch_size": result.largest_batch_size,
        "recommended_batch_size": result.recommended_batch_size,
        "speedup": result.speedup,
        "usd_per_year": result.savings and result.savings.usd_per_year,
        "gpu_hours_per_year": result.savings and result.savings.gpu_hours_per_year,
    }


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
