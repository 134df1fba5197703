"""Notifications of ended analyses, and members' choices about them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from analyses.models.analysis import Analysis
from analyses.models.states import Delivery

MAX_URL_LENGTH = 2000


class Channel(models.TextChoices):
    """The ways to notify a member."""

    EMAIL = "email", "E-mail"
    WEBHOOK = "webhook", "Webhook"
    LAB = "lab", "Lab channel"


class Event(models.TextChoices):
    """The events that members choose a channel for."""

    ENDED = "ended", "My analyses end"
    MENTION = "mention", "Someone mentions a change to me"
    PREDICTION = "prediction", "A run verifies or misses a prediction"
    ADVICE = "advice", "Advice for my jobs"


def all_events() -> list[str]:
    return list(Event.values)


class NotificationChoices(models.Model):
    """A member's choices about notifications; without a row, none are sent.

    ``email_events`` and the like are those that a channel is for, once it is on.
    ``webhook_secret`` signs the messages to the webhook. Only analyses that took longer than
    ``only_after_seconds``, from queued to ended, are notified of.
    """

    member = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notification_choices"
    )
    by_email = models.BooleanField(default=False)
    email_events = models.JSONField(default=all_events)
    by_webhook = models.BooleanField(default=False)
    webhook_events = models.JSONField(default=all_events)
    by_lab_channel = models.BooleanField(default=False)
    lab_channel_events = models.JSONField(default=all_events)
    webhook_url = models.CharField(max_length=MAX_URL_LENGTH, blank=True)
    webhook_secret = models.CharField(max_length=100)
    only_after_seconds = models.PositiveIntegerField(default=60)

    class Meta:
        verbose_name_plural = "notification choices"

    def __str__(self) -> str:
        return f"notification choices of {self.member}"


class Mention(models.Model):
    """A member's pointing out to an analysis's owner what a change would save.

    ``change`` and ``usd_per_year`` are what the page showed then.
    """

    MAX_LENGTH = 300

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="mentions")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    change = models.CharField(max_length=MAX_LENGTH)
    usd_per_year = models.FloatField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("by", "at")),)

    def __str__(self) -> str:
        return f"mention of analysis {self.analysis_id} by {self.by}"


class Concern(models.TextChoices):
    """The reasons for an entry in a member's inbox."""

    MENTION = "mention", "Mentioned"
    DECISION = "decision", "Decision waiting"
    FAILED = "failed", "Failed"
    VERIFIED = "verified", "Prediction verified"
    MISSED = "missed", "Prediction missed"
    ADVICE = "advice", "Advice for your job"


class InboxEntry(models.Model):
    """Something that concerns a member, about one analysis.

    :mod:`analyses.notifications.inbox` writes it.

    ``text`` is what a training run showed; that of other entries follows from the analysis or from
    ``mention``. There is one entry of each kind for an analysis, and one for each mention.
    """

    MAX_TEXT_LENGTH = 300

    member = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="inbox"
    )
    kind = models.CharField(max_length=20, choices=Concern)
    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="inbox_entries")
    mention = models.OneToOneField(
        Mention, on_delete=models.CASCADE, null=True, blank=True, related_name="entry"
    )
    text = models.CharField(max_length=MAX_TEXT_LENGTH, blank=True)
    at = models.DateTimeField(db_default=Now())
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "inbox entries"
        indexes = (
            models.Index(fields=("member", "-id"), name="inbox_of_a_member"),
            models.Index(
                fields=("member",), condition=models.Q(read_at=None), name="unread_of_a_member"
            ),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("analysis", "kind", "member"),
                condition=models.Q(mention=None),
                name="one_entry_of_a_kind",
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} of analysis {self.analysis_id} for {self.member}"


class Notification(models.Model):
    """The message about an analysis that has ended, or about an inbox entry, by one channel.

    Written in the transaction of the final state or the entry, so that neither exists without the
    other. ``entry`` is empty for an analysis that has ended. ``status`` follows its job, which also
    has the time of the next try.
    """

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="notifications")
    entry = models.ForeignKey(
        InboxEntry, on_delete=models.CASCADE, null=True, blank=True, related_name="notifications"
    )
    channel = models.CharField(max_length=20, choices=Channel)
    status = models.CharField(max_length=20, choices=Delivery, default=Delivery.WAITING)
    sent_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("analysis", "channel"),
                condition=models.Q(entry=None),
                name="told_once_by_a_channel",
            ),
            models.UniqueConstraint(fields=("entry", "channel"), name="entry_once_by_a_channel"),
        )

    def __str__(self) -> str:
        return f"{self.channel} on analysis {self.analysis_id}"
