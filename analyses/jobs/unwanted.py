"""Queries no page waits for: dropped while queued, deleted when old."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from analyses.jobs.lifecycle import move
from analyses.models import Job, Query, QueryStatus, Status

WANTED_FOR = timedelta(seconds=10)
"""A page polls several times a second; after this long without a request it counts as closed."""

KEPT_FOR = timedelta(days=settings.QUERIES_KEPT_DAYS)
"""After the last request."""


@transaction.atomic
def drop(unwanted: QuerySet[Query]) -> int:
    """Drop queries that are still queued and unwanted once they are locked.

    Jobs are locked before their subjects, as in every move.
    """
    jobs = Job.objects.filter(query__in=unwanted, state=Status.QUEUED).order_by("pk")
    count = 0
    for job in list(jobs.select_for_update(of=("self",))):
        if unwanted.filter(job=job).select_for_update(of=("self",)).first():
            this = Job.objects.filter(pk=job.pk)
            count += move(this, Status.QUEUED, Status.CANCELLED)
    return count


def drop_unwanted() -> int:
    """Drop the queries of pages that were closed; returns how many."""
    gone = Query.objects.filter(
        for_pages=True, status=QueryStatus.WAITING, asked_at__lt=Now() - WANTED_FOR
    )
    return drop(gone) if gone.exists() else 0


def tidy() -> None:
    """Drop what no page waits for, and delete old answers."""
    drop_unwanted()
    old = Query.objects.filter(asked_at__lt=Now() - KEPT_FOR)
    old.exclude(status=QueryStatus.RUNNING).delete()
