"""Data from outside: imported analyses, training runs, and keys of API requests."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis


class Push(models.Model):
    """The origin of an analysis that ran elsewhere and was pushed by its owner.

    The client makes ``document_id``, so that the same push twice is stored once; ``digest``, of the
    document, distinguishes it from another one. ``host`` and ``ran`` are what that machine
    reports about itself, unchecked.
    """

    analysis = models.OneToOneField(
        Analysis, on_delete=models.CASCADE, primary_key=True, related_name="push"
    )
    document_id = models.UUIDField(unique=True)
    digest = models.CharField(max_length=64)
    host = models.CharField(max_length=200)
    ran = models.CharField(max_length=200)
    received_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "pushes"

    def __str__(self) -> str:
        return f"analysis {self.pk} from {self.host}"


class PushedLadder(models.Model):
    """The ladder of a script, pushed with its analysis: no plan can be made of it in a lab.

    ``rungs`` are those of :class:`~engine.answer.ladder.Rung`, in order. Each has a whole answer,
    so they are not read where many analyses are.
    """

    analysis = models.OneToOneField(
        Analysis, on_delete=models.CASCADE, primary_key=True, related_name="pushed_ladder"
    )
    rungs = models.JSONField()

    def __str__(self) -> str:
        return f"ladder of analysis {self.pk}"


def pushed_from(analysis: Analysis) -> str | None:
    """The host that an analysis was pushed from; ``None`` if it ran in this lab."""
    push: Push | None = getattr(analysis, "push", None)
    return push.host if push else None


class TrainingRun(models.Model):
    """A member's training run as it was recorded; further columns repeat what pages show of it.

    ``record`` holds the fields of ``engine.recording.TrainingRecord``, all measured.
    ``document_id``, ``digest`` and ``host`` are as in :class:`Push`.

    ``verifies`` is whether it trained as its analysis recommends; decided by
    :mod:`analyses.training_runs.services` once both report and answer are there. ``gpu_hours`` is
    the measured time in training steps, over all devices; 0 if none was timed.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="trainings"
    )
    analysis = models.ForeignKey(
        Analysis, on_delete=models.SET_NULL, null=True, blank=True, related_name="trainings"
    )
    document_id = models.UUIDField(unique=True)
    digest = models.CharField(max_length=64)
    host = models.CharField(max_length=200)
    record = models.JSONField()
    batch_size = models.PositiveBigIntegerField()
    samples_per_second = models.FloatField(null=True, blank=True)
    peak_allocated_bytes = models.BigIntegerField(null=True, blank=True)
    peak_reserved_bytes = models.BigIntegerField(null=True, blank=True)
    device_name = models.CharField(max_length=500)
    gpu_hours = models.FloatField(default=0.0)
    recorded_at = models.DateTimeField()
    received_at = models.DateTimeField(auto_now_add=True)
    verifies = models.BooleanField(default=False)

    class Meta:
        db_table = "analyses_training"  # its name in the first releases
        ordering = ("-id",)
        indexes = (models.Index(fields=("analysis", "verifies")),)

    def __str__(self) -> str:
        return f"training with batch {self.batch_size} on {self.device_name}"


class IdempotencyKey(models.Model):
    """A member's API request with this key, and the analysis it made; kept for a day.

    ``digest`` is of the request's body. The row is written in the analysis's transaction, so that
    neither exists without the other.
    """

    MAX_LENGTH = 255
    member = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=MAX_LENGTH)
    digest = models.CharField(max_length=64)
    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, null=True, related_name="+")
    used_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("member", "key"), name="one_analysis_of_a_key"),
        )

    def __str__(self) -> str:
        return f"key {self.key} of {self.member}"


class SpentUnits(models.Model):
    """The time a member has all units of the API back; ``all_back`` is in seconds since 1970."""

    member = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="+"
    )
    all_back = models.FloatField()

    class Meta:
        verbose_name_plural = "spent units"

    def __str__(self) -> str:
        return f"units of {self.member}"
