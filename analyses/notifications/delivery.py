"""Sends what the outbox holds: each notification once, and again if that failed.

::

    waiting ──> sending ──> sent
       ^            │
       └── (pause) ─┴─────> given up

The row is the truth. A node's heartbeat puts into the queue what is due, a worker takes it by a
conditional update and sends it. Only a worker that dies between sending and noting it, or whose
other side is silent after taking it, has it sent twice; both have the same number.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from analyses import nodes, pace, queue
from analyses.models import Delivery, Notification
from analyses.notifications import channels, message
from analyses.notifications.webhook import NotDelivered

logger = logging.getLogger(__name__)

PAUSES = (
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
)
"""Before each further try; after the last it is given up."""


def deliver(pk: int) -> None:
    """Try to deliver a notification, unless it is not due or another worker has it.

    Raises:
        django.db.Error: If the database does not take how it went; :func:`recover` finds it then.
    """
    due = Notification.objects.filter(pk=pk, status=Delivery.WAITING, due_at__lte=Now())
    taken = due.update(
        status=Delivery.SENDING, node=nodes.here().name, taken_at=Now(), tries=F("tries") + 1
    )
    if not taken:
        return
    notification = Notification.objects.select_related("analysis__owner__notification_choices").get(
        pk=pk
    )
    analysis = notification.analysis
    try:
        channels.send(
            message.of_ended(analysis), notification.channel, analysis.owner.notification_choices
        )
    except NotDelivered as error:
        _failed(notification, str(error))
    except Exception as error:
        logger.exception("notification %d cannot be sent", pk)
        _failed(notification, f"MemoryMark failed: {type(error).__name__}: {error}")
    else:
        Notification.objects.filter(pk=pk).update(
            status=Delivery.SENT, sent_at=Now(), last_error=""
        )


def let_go() -> int:
    """Take all notifications from their workers, which are another instance's; returns how many."""
    sending = Notification.objects.filter(status=Delivery.SENDING)
    return sending.update(status=Delivery.WAITING, due_at=Now())


def recover() -> None:
    """Put right what was left behind, and queue what is due; any node may do it at any time."""
    stale = Notification.objects.filter(
        status=Delivery.SENDING, taken_at__lt=Now() - pace.STALE_AFTER
    )
    for notification in stale:
        _failed(notification, f"the worker on {notification.node} stopped while sending this")
    _queue_due()


def _failed(notification: Notification, why: str) -> None:
    """Note why the latest try has failed, and when the next one is due, if any."""
    mine = Notification.objects.filter(
        pk=notification.pk, status=Delivery.SENDING, tries=notification.tries
    )
    if notification.tries > len(PAUSES):
        logger.warning("%s is given up: %s", notification, why)
        mine.update(status=Delivery.GIVEN_UP, last_error=why)
    else:
        due_at = Now() + PAUSES[notification.tries - 1]
        mine.update(status=Delivery.WAITING, last_error=why, due_at=due_at)


def _queue_due() -> None:
    due = Notification.objects.filter(status=Delivery.WAITING, due_at__lte=Now())
    if not due.exists():
        return
    with transaction.atomic():
        # Rows first: an entry is never seen missing that was written with a row seen here.
        rows = list(due.select_for_update().order_by("pk"))
        # One in hand is written again, lest it is in dead hands; whoever comes second does nothing.
        with_entry = queue.queued(queue.NOTIFICATION, queue.free_entries())
        for notification in rows:
            if notification.pk not in with_entry:
                queue.enqueue_notification(notification)
