"""Small questions that are answered in seconds, without an analysis. The row is queue and truth."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models.functions import Now


class Ask(models.TextChoices):
    """What is asked; the same words as ``engine.run.ASKS``."""

    PREDICT = "predict", "one batch size on one GPU"
    PLAN = "plan", "every GPU, and what changes would buy"


class LookupStatus(models.TextChoices):
    """Where a lookup is in its life; :mod:`analyses.lookups.services` says how it gets there."""

    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    ANSWERED = "answered", "Answered"
    FAILED = "failed", "Failed"
    DROPPED = "dropped", "Dropped"


SHARED = (LookupStatus.WAITING, LookupStatus.RUNNING, LookupStatus.ANSWERED)
"""Whoever asks the same joins one of these."""


class Lookup(models.Model):
    """One question and its answer, shared by all who have asked it.

    ``question`` is equal for lookups with the same answer, and empty where there may be none.
    ``request`` holds the flat fields of ``engine.request.AnalysisRequest``, ``answer`` the body of
    ``engine.events.Answer``, and ``failure`` a ``code``, a ``reason`` and messages by ``fields``.
    ``progress`` is the last thing that the engine has said about its work.

    ``for_pages``: only pages have asked, so it is dropped when nobody looks at them any more;
    ``asked_at`` is when somebody last did. ``tries`` counts the desks that have taken it.
    """

    ask = models.CharField(max_length=20, choices=Ask)
    question = models.CharField(max_length=64, blank=True)
    request = models.JSONField()
    askers: models.ManyToManyField[User, models.Model] = models.ManyToManyField(
        settings.AUTH_USER_MODEL, related_name="lookups"
    )
    for_pages = models.BooleanField(default=False)

    status = models.CharField(max_length=20, choices=LookupStatus, default=LookupStatus.WAITING)
    answer = models.JSONField(null=True, blank=True)
    failure = models.JSONField(null=True, blank=True)
    progress = models.TextField(blank=True)

    created_at = models.DateTimeField(db_default=Now())
    asked_at = models.DateTimeField(db_default=Now(), db_index=True)
    taken_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    claim_token = models.CharField(max_length=32, blank=True)
    node = models.CharField(max_length=200, blank=True)
    tries = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("status", "ask")),)
        constraints = (
            models.UniqueConstraint(
                fields=("question",),
                condition=models.Q(status__in=SHARED) & ~models.Q(question=""),
                name="one_lookup_of_a_question",
            ),
        )

    def __str__(self) -> str:
        return f"lookup {self.pk}: {self.ask} {self.request.get('model')}"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status not in (LookupStatus.WAITING, LookupStatus.RUNNING)
