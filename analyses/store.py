"""The columns of an analysis that its request fills, and the reuse of an earlier result.

Only predictions are reused: the same input gives the same result. A measurement also depends on
the state of the machine.
"""

from __future__ import annotations

import hashlib
import json

from django.db.models.functions import Now

from analyses.decided import own_columns
from analyses.jobs.lifecycle import move
from analyses.jobs.measured_steps import newest
from analyses.jobs.nodes import engine_version
from analyses.lab import Settled
from analyses.models import Analysis, Job, LogLine, Status, Trial
from analyses.savings.aggregation import workload_key
from engine.gpus import LOCAL
from engine.models.presets import PRESETS
from engine.request import AnalysisRequest


def request_columns(settled: Settled, measured_gpu: str = "") -> dict[str, object]:
    """The columns that a request fills."""
    request = settled.request
    workload, stored = request.workload, request.to_dict()
    return {
        "request": stored,
        "assumed_by": settled.assumed_by,
        "model": workload.model,
        "gpu": request.gpu,
        "precision": workload.precision,
        "optimizer": workload.optimizer,
        "software": workload.software,
        "current_batch_size": request.current_batch_size,
        "request_hash": request_hash(request),
        "measured_gpu": measured_gpu,
        "workload_key": workload_key(stored, measured_gpu),
    }


def request_hash(request: AnalysisRequest, ask: str = "") -> str:
    """A hash that is equal for requests with equal answers; empty if that cannot be known.

    Args:
        request: On a GPU of the catalogue.
        ask: The kind of query, if it is not an analysis.
    """
    workload = request.workload
    from_hub = workload.config is None and workload.model not in PRESETS  # may change there
    if request.gpu == LOCAL or from_hub:
        return ""
    asked = json.dumps(request.to_dict(), sort_keys=True)
    basis = f"{engine_version()} {newest(request.gpu)} {ask}{asked}"
    return hashlib.sha256(basis.encode()).hexdigest()


def answer(analysis: Analysis) -> bool:
    """Answer a queued analysis from an earlier one if there is one; returns whether there was.

    Call it in a transaction.
    """
    if not analysis.request_hash:
        return False
    earlier = (
        Analysis.objects.filter(request_hash=analysis.request_hash, status=Status.SUCCEEDED)
        .exclude(pk=analysis.pk)
        .order_by("-pk")
        .first()
    )
    if earlier is None:
        return False
    origin = earlier.answered_from or earlier
    copied = own_columns(earlier) | {"environment": earlier.environment}
    copied |= {"started_at": Now(), "answered_from": origin}
    job = Job.objects.filter(analysis=analysis)
    if not move(job, Status.QUEUED, Status.SUCCEEDED, subject=copied):
        return False
    _copy_trials(earlier, analysis)
    LogLine.objects.create(
        analysis=analysis,
        message=f"Analysis {origin.pk} had the same settings; its result is reused.",
    )
    analysis.refresh_from_db()
    return True


def _copy_trials(earlier: Analysis, analysis: Analysis) -> None:
    trials = list(earlier.trials.all())
    for trial in trials:
        trial.pk = None
        trial.analysis = analysis
    Trial.objects.bulk_create(trials)
