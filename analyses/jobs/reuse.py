"""The reuse of an earlier result.

Only predictions are reused: the same input gives the same result. A measurement also depends on
the state of the machine.
"""

from __future__ import annotations

from django.db.models.functions import Now

from analyses.jobs.lifecycle import move
from analyses.models import Analysis, Job, LogLine, Status, Trial
from analyses.results.decided import own_columns


def reuse_result(analysis: Analysis) -> bool:
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
        message=f"Analysis {origin.pk} had the same settings. Its result is reused.",
    )
    analysis.refresh_from_db()
    return True


def _copy_trials(earlier: Analysis, analysis: Analysis) -> None:
    trials = list(earlier.trials.all())
    for trial in trials:
        trial.pk = None
        trial.analysis = analysis
    Trial.objects.bulk_create(trials)
