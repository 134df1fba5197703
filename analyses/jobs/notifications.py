"""Notifications: written and queued with the final state, sent by a worker.

A notification is sent twice only if its worker dies between sending and storing that, or if the
receiver accepts it without a response. Both have the same id.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.db.models import F, QuerySet
from django.db.models.functions import Now

from analyses.jobs import queue
from analyses.jobs.engine_output import Failure
from analyses.models import Analysis, Channel, Job, Notification, Status
from analyses.notifications import channels, message
from analyses.notifications.webhook import NotDelivered


def note_ended(numbers: Collection[int]) -> None:
    """Write a notification for each channel that the owners of these analyses have chosen.

    Call it in the transaction in which the analyses end. It skips what owners know already: results
    that were reused or pushed, and analyses they cancelled themselves.
    """
    ended = (
        Analysis.objects.filter(pk__in=numbers, owner__is_active=True, answered_from=None)
        .filter(owner__notification_choices__isnull=False, push=None)
        .exclude(cancelled_by=F("owner"))
        .select_related("owner__notification_choices")
        .defer("request", "result")
    )
    for analysis in ended:
        for channel in _channels(analysis):
            queue.enqueue(Notification.objects.create(analysis=analysis, channel=channel))


def _channels(analysis: Analysis) -> list[Channel]:
    chosen = analysis.owner.notification_choices
    took_at_most = timedelta(seconds=chosen.only_after_seconds)
    ended = analysis.finished_at
    if ended is None or ended - analysis.queued_at <= took_at_most:
        return []
    return channels.channels_of(chosen)


def hold(analyses: Collection[int], at_most: timedelta) -> None:
    """Send the messages about analyses that have just ended later, unless they are released."""
    _unsent(analyses).update(not_before=Now() + at_most)


def release(analyses: Collection[int]) -> None:
    """Send the held messages about these analyses now."""
    _unsent(analyses).filter(not_before__gt=Now()).update(not_before=Now())


def _unsent(analyses: Collection[int]) -> QuerySet[Job]:
    """The messages about the end of analyses that nobody has tried to send."""
    untried = Job.objects.filter(state=Status.QUEUED, losses=0, attempts=0)
    return untried.filter(notification__analysis__in=analyses, notification__mention=None)


NOT_DELIVERED = "not_delivered"


def deliver(pk: int) -> Failure | None:
    """Send a notification on its channel; returns the reason if that failed."""
    notification = Notification.objects.select_related(
        "analysis__owner__notification_choices",
        "analysis__decided",
        "mention__by",
        "mention__analysis__decided",
    ).get(pk=pk)
    analysis = notification.analysis
    choices = analysis.owner.notification_choices
    try:
        told = notification.mention
        text = message.of_mention(told) if told else message.of_ended(analysis)
        channels.send(text, notification.channel, choices)
    except NotDelivered as error:
        return Failure(NOT_DELIVERED, str(error))
    return None
