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
from analyses.models import (
    Analysis,
    Channel,
    Concern,
    Event,
    InboxEntry,
    Job,
    Notification,
    NotificationChoices,
    Status,
)
from analyses.notifications import channels, inbox, message
from analyses.notifications.webhook import NotDelivered


def note_ended(numbers: Collection[int]) -> None:
    """Add these analyses to their owners' inboxes, and a notification for each chosen channel.

    Call it in the transaction in which the analyses end. It skips what owners know already: results
    that were reused or pushed, and analyses they cancelled themselves.
    """
    ended = (
        Analysis.objects.filter(pk__in=numbers, owner__is_active=True, answered_from=None)
        .filter(push=None)
        .exclude(cancelled_by=F("owner"))
        .select_related("owner__notification_choices", "decided")
        .defer("request", "result", "decided__before")
    )
    for analysis in ended:
        inbox.note_ended(analysis)
        for channel in _channels(analysis):
            queue.enqueue(Notification.objects.create(analysis=analysis, channel=channel))


def note_entry(entry: InboxEntry) -> None:
    """Write a notification of an inbox entry for each channel that its member has chosen.

    An analysis that ended has a notification of its own, whether it is in the inbox or not.
    """
    event = _EVENTS.get(Concern(entry.kind))
    if event:
        for channel in channels.channels_of(channels.choices_of(entry.member), event):
            told = Notification.objects.create(
                analysis=entry.analysis, entry=entry, channel=channel
            )
            queue.enqueue(told)


_EVENTS = {
    Concern.MENTION: Event.MENTION,
    Concern.VERIFIED: Event.PREDICTION,
    Concern.MISSED: Event.PREDICTION,
    Concern.ADVICE: Event.ADVICE,
}


def _channels(analysis: Analysis) -> list[Channel]:
    chosen: NotificationChoices | None = getattr(analysis.owner, "notification_choices", None)
    ended = analysis.finished_at
    if chosen is None or ended is None:
        return []
    took_at_most = timedelta(seconds=chosen.only_after_seconds)
    if ended - analysis.queued_at <= took_at_most:
        return []
    return channels.channels_of(chosen, Event.ENDED)


def hold(analyses: Collection[int], at_most: timedelta) -> None:
    """Send the messages about analyses that have just ended later, unless they are released."""
    _unsent(analyses).update(not_before=Now() + at_most)


def release(analyses: Collection[int]) -> None:
    """Send the held messages about these analyses now."""
    _unsent(analyses).filter(not_before__gt=Now()).update(not_before=Now())


def _unsent(analyses: Collection[int]) -> QuerySet[Job]:
    """The messages about the end of analyses that nobody has tried to send."""
    untried = Job.objects.filter(state=Status.QUEUED, losses=0, attempts=0)
    return untried.filter(notification__analysis__in=analyses, notification__entry=None)


NOT_DELIVERED = "not_delivered"


def deliver(pk: int) -> Failure | None:
    """Send a notification on its channel; returns the reason if that failed."""
    notification = Notification.objects.select_related(
        "analysis__owner__notification_choices",
        "analysis__decided",
        "entry__mention__by",
        "entry__analysis__decided",
    ).get(pk=pk)
    analysis = notification.analysis
    choices = analysis.owner.notification_choices
    try:
        entry = notification.entry
        text = message.of_entry(entry) if entry else message.of_ended(analysis)
        channels.send(text, notification.channel, choices)
    except NotDelivered as error:
        return Failure(NOT_DELIVERED, str(error))
    return None
