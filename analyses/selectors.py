"""Every read: who may see what, and what is alive."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.models import User as Member
from django.db.models import Q, QuerySet
from django.utils import timezone

from analyses.models import Analysis, LogLine, Node, Status

STALE_AFTER = timedelta(seconds=30)
"""Without a heartbeat for this long, a worker counts as gone; it gives one every few seconds."""


def visible_to(user: Member | AnonymousUser) -> QuerySet[Analysis]:
    """The analyses this user may see: every member sees the whole lab's, anybody else none."""
    analyses = Analysis.objects.select_related("owner")
    return analyses if user.is_authenticated and user.is_active else analyses.none()


def detail(user: Member | AnonymousUser) -> QuerySet[Analysis]:
    """What :func:`visible_to` gives, with the trials at hand."""
    return visible_to(user).prefetch_related("trials")


def log_lines(analysis: Analysis, after: int = 0) -> QuerySet[LogLine]:
    """The log lines of an analysis whose id is greater than ``after``."""
    return analysis.log_lines.filter(pk__gt=after)


def running_without_heartbeat() -> QuerySet[Analysis]:
    """Analyses whose worker has gone without ending them."""
    return Analysis.objects.filter(
        status=Status.RUNNING, heartbeat_at__lt=timezone.now() - STALE_AFTER
    )


def queue_stands_still() -> bool:
    """Whether an analysis waits that a worker should have taken long ago.

    A worker killed while it waits for work takes the lock of django-q2's inner queue with it: the
    workers after it look alive and never get anything.
    """
    since = timezone.now() - timedelta(seconds=settings.QUEUE_STANDSTILL_SECONDS)
    waiting = Analysis.objects.filter(status=Status.QUEUED, queued_at__lt=since)
    moving = Analysis.objects.filter(Q(status=Status.RUNNING) | Q(finished_at__gte=since))
    return waiting.exists() and not moving.exists()


def nodes_online() -> QuerySet[Node]:
    """The nodes with a worker that is alive."""
    return Node.objects.filter(heartbeat_at__gte=timezone.now() - STALE_AFTER)


def nodes_with_gpu() -> QuerySet[Node]:
    """The nodes online that can measure on a GPU."""
    return nodes_online().exclude(gpu_name="")
