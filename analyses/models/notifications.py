"""How members are told of their analyses, and what is on its way to them."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis
from analyses.notifications.address import LONGEST_URL


class Channel(models.TextChoices):
    """A way to tell a member something."""

    EMAIL = "email", "E-mail"
    WEBHOOK = "webhook", "Webhook"


class NotificationChoices(models.Model):
    """How a member wants to be told that an analysis has ended; nobody is told without a row.

    ``webhook_secret`` is what messages to the webhook are signed with. An analysis is told of only
    if it took longer than ``only_after_seconds``, from when it was queued until it ended.
    """

    member = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notification_choices"
    )
    by_email = models.BooleanField(default=False)
    by_webhook = models.BooleanField(default=False)
    webhook_url = models.CharField(max_length=LONGEST_URL, blank=True)
    webhook_secret = models.CharField(max_length=100)
    only_after_seconds = models.PositiveIntegerField(default=60)

    class Meta:
        verbose_name_plural = "notification choices"

    def __str__(self) -> str:
        return f"notification choices of {self.member}"


class Delivery(models.TextChoices):
    """Where a notification is on its way; :mod:`analyses.notifications.delivery` moves it."""

    WAITING = "waiting", "Waiting"
    SENDING = "sending", "Sending"
    SENT = "sent", "Sent"
    GIVEN_UP = "given_up", "Given up"


class Notification(models.Model):
    """What is to be told of an analysis that has ended, by one channel; once for each.

    Written with the final state, so that neither is there without the other. It is tried when it is
    ``due_at``; ``tries`` counts those begun, and the last was taken by ``node`` at ``taken_at``.
    """

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="notifications")
    channel = models.CharField(max_length=20, choices=Channel)
    status = models.CharField(max_length=20, choices=Delivery, default=Delivery.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField()
    node = models.CharField(max_length=200, blank=True)
    taken_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("status", "due_at")),)
        constraints = (
            models.UniqueConstraint(fields=("analysis", "channel"), name="told_once_by_a_channel"),
        )

    def __str__(self) -> str:
        return f"{self.channel} on analysis {self.analysis_id}"
