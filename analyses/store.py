"""Answers that are known already: the same question to the same engine has the same answer.

Only predictions are answered so: they compute the same from the same input. A measurement is made
anew, since it is of a machine on a day.
"""

from __future__ import annotations

import hashlib
import json

from django.utils import timezone

from analyses.environment import engine_version
from analyses.lifecycle import move
from analyses.models import Analysis, LogLine, Status, Trial
from engine.gpus import LOCAL
from engine.models.presets import PRESETS
from engine.request import AnalysisRequest


def question_of(request: AnalysisRequest, ask: str = "") -> str:
    """A word that is equal for two requests if their answers are; empty where none can be known.

    Args:
        request: On a GPU of the catalogue.
        ask: What is asked about it, if that is not an analysis.
    """
    workload = request.workload
    from_hub = workload.config is None and workload.model not in PRESETS  # may change there
    if request.gpu == LOCAL or from_hub:
        return ""
    asked = json.dumps(request.to_dict(), sort_keys=True)
    return hashlib.sha256(f"{engine_version()} {ask}{asked}".encode()).hexdigest()


def answer(analysis: Analysis) -> bool:
    """Answer a queued analysis from an earlier one, in the caller's transaction.

    Returns:
        Whether there was an earlier one.
    """
    if not analysis.question:
        return False
    earlier = (
        Analysis.objects.filter(question=analysis.question, status=Status.SUCCEEDED)
        .exclude(pk=analysis.pk)
        .order_by("-pk")
        .first()
    )
    if earlier is None:
        return False
    origin = earlier.answered_from or earlier
    copied = {
        name: getattr(earlier, name)
        for name in (
            "result", "source", "largest_batch_size", "recommended_batch_size", "speedup",
            "usd_per_year", "gpu_hours_per_year", "environment",
        )
    }  # fmt: skip
    this = Analysis.objects.filter(pk=analysis.pk)
    now = timezone.now()
    moved = move(
        this, Status.QUEUED, Status.SUCCEEDED, started_at=now, answered_from=origin, **copied
    )
    if not moved:
        return False
    _copy_trials(earlier, analysis)
    LogLine.objects.create(
        analysis=analysis,
        message=f"The same question was answered in analysis {origin.pk}; this is its answer.",
    )
    analysis.refresh_from_db()
    return True


def _copy_trials(earlier: Analysis, analysis: Analysis) -> None:
    trials = list(earlier.trials.all())
    for trial in trials:
        trial.pk = None
        trial.analysis = analysis
    Trial.objects.bulk_create(trials)
