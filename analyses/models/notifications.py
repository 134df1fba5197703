"""Notifications of ended analyses, and members' choices about them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from analyses.models.analysis import Analysis

MAX_URL_LENGTH = 2000


class Channel(models.TextChoices):
    """The ways to notify a member."""

    EMAIL = "email", "E-mail"
    WEBHOOK = "webhook", "Webhook"


class NotificationChoices(models.Model):
    """A member's choices about notifications of ended analyses; without a row, none are sent.

    ``webhook_secret`` signs the messages to the webhook. Only analyses that took longer than
    ``only_after_seconds``, from queued to ended, are notified of.
    """

    member = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notification_choices"
    )
    by_email = models.BooleanField(default=False)
    by_webhook = models.BooleanField(default=False)
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

    LONGEST = 300

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="mentions")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    change = models.CharField(max_length=LONGEST)
    usd_per_year = models.FloatField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("by", "at")),)

    def __str__(self) -> str:
        return f"mention of analysis {self.analysis_id} by {self.by}"


class Delivery(models.TextChoices):
    """The states of a notification: those of its job, as the page names them."""

    WAITING = "waiting", "Waiting"
    SENDING = "sending", "Sending"
    SENT = "sent", "Sent"
    GIVEN_UP = "given_up", "Given up"


class Notification(models.Model):
    """The message about an analysis that has ended, or that was mentioned, by one channel.

    Written in the transaction of the final state or the mention, so that neither exists without the
    other. ``mention`` is empty for one that has ended. ``status`` follows its job, which also
    has the time of the next try.
    """

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="notifications")
    mention = models.ForeignKey(
        Mention, on_delete=models.CASCADE, null=True, blank=True, related_name="notifications"
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
                condition=models.Q(mention=None),
                name="told_once_by_a_channel",
            ),
            models.UniqueConstraint(
                fields=("mention", "channel"), name="mentioned_once_by_a_channel"
            ),
        )

    def __str__(self) -> str:
        return f"{self.channel} on analysis {self.analysis_id}"
