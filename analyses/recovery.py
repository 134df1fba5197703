"""Gives up analyses whose worker has gone and queues those whose queue entry is lost."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ

from analyses import selectors, services
from analyses.models import Analysis, Status

logger = logging.getLogger(__name__)

LOST_REASON = (
    "The worker stopped without finishing this (the machine was switched off, or the process "
    "killed). Nothing is wrong with it; run it again."
)


def recover() -> None:
    """Put everything right before a cluster starts."""
    fail_stale()
    release_queued()
    requeue_lost()


def fail_stale() -> int:
    """Fail the running analyses without a recent heartbeat; returns how many."""
    failed = selectors.running_without_heartbeat().update(
        status=Status.FAILED,
        finished_at=timezone.now(),
        failure_code="worker_lost",
        failure_reason=LOST_REASON,
    )
    if failed:
        logger.warning("%d analyses had lost their worker and were marked as failed", failed)
    return failed


def requeue_lost() -> int:
    """Queue again what waits without a queue entry; returns how many.

    A row and its entry are written together, so there are none but where somebody emptied the
    queue, or the site's secret key changed and the cluster threw its entries away.
    """
    waiting = Analysis.objects.filter(status=Status.QUEUED).values_list("pk", flat=True)
    if not waiting.exists():
        return 0
    with transaction.atomic():
        # Rows first: an entry is never seen missing that was written with a row seen here.
        pks = list(waiting.select_for_update())
        lost = set(pks) - _analyses_with_entry()
        for pk in sorted(lost):
            services.enqueue(pk)
    return len(lost)


def release_queued() -> None:
    """Let the next cluster take entries at once that the last one had fetched but not begun.

    They would wait for the queue's retry time otherwise. Where another cluster has such an entry
    in hand, it is delivered twice, which the claim makes harmless.
    """
    now = timezone.now()
    OrmQ.objects.filter(key=Conf.CLUSTER_NAME, lock__gt=now).update(lock=now - timedelta(seconds=1))


def _analyses_with_entry() -> set[int]:
    entries = OrmQ.objects.filter(key=Conf.CLUSTER_NAME)
    return {entry.args()[0] for entry in entries if entry.func() == services.TASK}
