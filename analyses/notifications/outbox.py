"""What is to be told is written with the final state itself; :mod:`.delivery` sends it later."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.db.models import F
from django.db.models.functions import Now

from analyses.models import Analysis, Channel, Notification
from analyses.notifications.choices import channels_of


def note_ended(numbers: Collection[int]) -> None:
    """Write a notification for each channel that the owners of these analyses have chosen.

    To be called in the transaction in which the analyses end. What the store answered at once, what
    the owner has pushed or cancelled, is known to the owner already.
    """
    ended = (
        Analysis.objects.filter(pk__in=numbers, owner__is_active=True, answered_from=None)
        .filter(owner__notification_choices__isnull=False, push=None)
        .exclude(cancelled_by=F("owner"))
        .select_related("owner__notification_choices")
        .defer("request", "result")
    )
    Notification.objects.bulk_create(
        Notification(analysis=analysis, channel=channel, due_at=Now())
        for analysis in ended
        for channel in _channels(analysis)
    )


def _channels(analysis: Analysis) -> list[Channel]:
    chosen = analysis.owner.notification_choices
    took_at_most = timedelta(seconds=chosen.only_after_seconds)
    ended = analysis.finished_at
    if ended is None or ended - analysis.queued_at <= took_at_most:
        return []
    return channels_of(chosen)
