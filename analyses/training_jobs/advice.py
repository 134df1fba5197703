"""Advice in the inbox of a member whose imported job trained with a batch that is known to be slow.

The member's own analysis of the same settings knows the faster one. A job that ended before the
answer was there is no news, and one entry stands for all jobs of an analysis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from django.db.models import QuerySet

from analyses.figures.columns import change_of, stored
from analyses.models import Analysis, Concern, Status, TrainingJob
from analyses.notifications import inbox
from engine.core.border import read
from engine.core.choices import Goal
from engine.core.numbers import whole
from engine.core.sizes import gib_number
from engine.interface.request import FIELDS

_BATCH = "current_batch_size"


def advise(jobs: Collection[TrainingJob]) -> None:
    """Add an entry for each analysis that one of these jobs has not followed."""
    known = [
        job for job in jobs if job.owner_id and job.model and job.gpu and _BATCH in job.request
    ]
    if not known:
        return
    found = list(_with_gain(known))
    for job in known:
        if analysis := _of(job, found):
            inbox.add(analysis, Concern.ADVICE, _text(job, analysis))


def _with_gain(jobs: Iterable[TrainingJob]) -> QuerySet[Analysis]:
    """The analyses whose faster batch these jobs may have ignored, newest first."""
    owners, models, gpus = zip(*((job.owner_id, job.model, job.gpu) for job in jobs), strict=True)
    return (
        Analysis.objects.filter(
            owner__in=set(owners),
            model__in=set(models),
            gpu__in=set(gpus),
            status=Status.SUCCEEDED,
            goal=Goal.BATCH,
            has_gain=True,
        )
        .select_related("owner", "decided")
        .defer("result", "decided__before")
        .order_by("-pk")
    )


def _of(job: TrainingJob, analyses: Iterable[Analysis]) -> Analysis | None:
    """The newest analysis of a job's settings that had its answer while the job ran."""
    return next(
        (
            one
            for one in analyses
            if (one.owner_id, one.model, one.gpu) == (job.owner_id, job.model, job.gpu)
            and one.finished_at is not None
            and one.finished_at < job.ended_at
            and one.request.get("world_size") == job.gpus
            and all(_is_same(name, value, one.request) for name, value in job.request.items())
        ),
        None,
    )


def _is_same(name: str, value: object, request: dict[str, object]) -> bool:
    """Whether an analysis is of a setting that a job has logged."""
    return bool(read(FIELDS[name], value, {}) == read(FIELDS[name], request.get(name), {}))


def _text(job: TrainingJob, analysis: Analysis) -> str:
    used = ""
    if job.used_bytes and job.total_bytes:
        peak, total = gib_number(job.used_bytes), gib_number(job.total_bytes)
        used = f", {peak} of {total} GiB in use (measured)"
    return (
        f"{job} trained with batch {whole(job.request[_BATCH])}{used}. Recommended: "
        f"{change_of(analysis)}, {stored(analysis, 'speedup')} ({analysis.source})."
    )
