"""What a real training used, as it was recorded where it ran."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis


class Training(models.Model):
    """One training of a member, with its record; the columns beside repeat what is shown of it.

    ``record`` holds the fields of ``engine.recording.TrainingRecord``; every figure in it is
    measured. ``document_id`` is made by who reports it, so that the same report twice is stored
    once, and ``digest`` is of the report. ``host`` is what that machine calls itself.

    ``verifies`` is whether it trained as its analysis recommends, by
    :mod:`analyses.trainings.verification`; a final answer never changes, nor does this.
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
    recorded_at = models.DateTimeField()
    received_at = models.DateTimeField(auto_now_add=True)
    verifies = models.BooleanField(default=False)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("analysis", "verifies")),)

    def __str__(self) -> str:
        return f"training with batch {self.batch_size} on {self.device_name}"
