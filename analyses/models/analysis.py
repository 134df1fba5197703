"""What is stored of every analysis. The row is the truth; the queue carries its id only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models

from analyses.log_context import LONGEST_REQUEST_ID

if TYPE_CHECKING:
    from analyses.models.labels import Tag


class Status(models.TextChoices):
    """Where an analysis is in its life; :mod:`analyses.lifecycle` says how it gets there."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    CANCELLING = "cancelling", "Cancelling"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"
    LOST = "lost", "Lost"


FINAL_STATUSES = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.LOST)


AT_WORK = (Status.RUNNING, Status.CANCELLING)
"""A worker holds it."""


class FigureSource(models.TextChoices):
    """Where a figure comes from; the same words as ``engine.result.Source``."""

    MEASURED = "measured", "Measured"
    PREDICTED = "predicted", "Predicted"
    ASSUMED = "assumed", "Assumed"


SORTED_BY = (
    ("optimizer",),
    ("recommended_batch_size",),
    ("largest_batch_size",),
    ("speedup",),
    ("usd_per_year",),
    ("source",),
)
"""What the history sorts by and does not filter by. (PostgreSQL has some indexes more for those
that can be empty: see the migration of counted savings.)"""

FILTERED_BY = (
    (),
    ("status",),
    ("owner",),
    ("queued_at",),
    ("precision",),
    ("model",),
    ("gpu", "measured_gpu"),
)
"""What the history filters by, and sorts by too; first of all, by nothing.

That of the status, which most analyses share, is made before those of model, GPU and precision: of
several that fit SQLite, which keeps no statistics here, takes the one made last.

Each index holds all columns that a list may ask for besides. So a page of any filters is found,
counted and skipped to within one index: a row has up to 70 kB with its JSON, and to look into ten
thousand of them took half a second.
"""

_LISTED = (
    "model", "gpu", "measured_gpu", "precision", "status", "owner", "queued_at", "adopted_at",
    *(column for columns in SORTED_BY for column in columns),
)  # fmt: skip


def _listing(columns: tuple[str, ...]) -> tuple[str, ...]:
    rest = (column for column in _LISTED if column not in columns)
    return (*columns, "-id", *rest)


class Analysis(models.Model):
    """One submitted question, its status and its answer.

    ``request`` holds the flat fields of ``engine.request.AnalysisRequest`` and ``result`` those of
    ``engine.result.AnalysisResult``. The columns beside them repeat what lists sort and filter by.
    ``assumed_by`` says of its hours, runs and price whose they are; see
    :class:`analyses.lab.defaults.Settled`.

    ``measured_gpu`` is the name of the GPU to measure on; empty for a prediction. ``attempt``
    counts the workers that have taken it, ``losses`` those that vanished with it, and ``node`` is
    where the last of them runs. While it is
    measured, ``device`` is the UUID of the GPU it holds; one GPU is never held twice.
    ``question`` is equal for analyses with the same answer, and empty where there may be none.
    ``cancelled_by`` is who has asked for its end. ``environment`` is what it ran with, as
    :func:`analyses.environment.environment_here` says it; empty before a worker has taken it.

    ``request_id`` is that of the web request that has submitted it, to find its log lines by.

    ``workload_key`` is equal for analyses of the same workload on the same GPU. ``adopted_at`` is
    when ``adopted_by`` said that the recommended batch is trained with; empty until then.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="analyses"
    )
    request = models.JSONField()
    assumed_by = models.JSONField(default=dict, blank=True)
    model = models.CharField(max_length=500)
    gpu = models.CharField(max_length=100)
    precision = models.CharField(max_length=20)
    optimizer = models.CharField(max_length=20)
    current_batch_size = models.PositiveIntegerField()

    request_id = models.CharField(max_length=LONGEST_REQUEST_ID, blank=True)
    measured_gpu = models.CharField(max_length=200, blank=True)
    question = models.CharField(max_length=64, blank=True)
    workload_key = models.CharField(max_length=64, blank=True)
    answered_from = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    queued_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    claim_token = models.CharField(max_length=32, blank=True)
    attempt = models.PositiveSmallIntegerField(default=0)
    losses = models.PositiveSmallIntegerField(default=0)
    node = models.CharField(max_length=200, blank=True)
    device = models.CharField(max_length=100, blank=True)
    environment = models.JSONField(default=dict, blank=True)

    failure_code = models.CharField(max_length=40, blank=True)
    failure_reason = models.TextField(blank=True)
    cancelled_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    tags: models.ManyToManyField[Tag, models.Model] = models.ManyToManyField(
        "Tag", related_name="analyses", blank=True
    )

    result = models.JSONField(null=True, blank=True)
    source = models.CharField(max_length=20, choices=FigureSource, blank=True)
    largest_batch_size = models.PositiveIntegerField(null=True, blank=True)
    recommended_batch_size = models.PositiveIntegerField(null=True, blank=True)
    speedup = models.FloatField(null=True, blank=True)
    usd_per_year = models.FloatField(null=True, blank=True)
    gpu_hours_per_year = models.FloatField(null=True, blank=True)
    adopted_at = models.DateTimeField(null=True, blank=True)
    adopted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "analyses"
        indexes = (
            models.Index(fields=("status", "heartbeat_at")),
            models.Index(fields=("question", "status")),
            models.Index(fields=("finished_at",)),  # for whether the queue stands still
            models.Index(fields=("status", "owner", "workload_key", "adopted_at")),
            models.Index(fields=("-id",), name="by_number"),  # short, to skip to the last page
            *(models.Index(fields=(*columns, "-id")) for columns in SORTED_BY),
            *(models.Index(fields=_listing(columns)) for columns in FILTERED_BY),
            models.Index(
                fields=("-id", "adopted_at"),
                condition=models.Q(adopted_at__isnull=False),
                name="adopted_ones",
            ),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("device",),
                condition=models.Q(status__in=AT_WORK) & ~models.Q(device=""),
                name="one_measurement_per_gpu",
            ),
        )

    def __str__(self) -> str:
        return f"analysis {self.pk}: {self.model} on {self.gpu}"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in FINAL_STATUSES

    @property
    def ended_without_answer(self) -> bool:
        """Whether it has failed, was cancelled or lost."""
        return self.is_final and self.status != Status.SUCCEEDED


class Trial(models.Model):
    """One batch size tried in an analysis; the fields are those of ``engine.result.Trial``.

    ``attempt`` is that of the analysis when it was reported.
    """

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="trials")
    attempt = models.PositiveSmallIntegerField(default=1)
    batch_size = models.PositiveIntegerField()
    fits = models.BooleanField()
    source = models.CharField(max_length=20, choices=FigureSource)
    peak_allocated_bytes = models.BigIntegerField(null=True, blank=True)
    peak_reserved_bytes = models.BigIntegerField(null=True, blank=True)
    device_used_bytes = models.BigIntegerField(null=True, blank=True)
    step_seconds = models.FloatField(null=True, blank=True)
    samples_per_second = models.FloatField(null=True, blank=True)
    device_used_low_bytes = models.BigIntegerField(null=True, blank=True)
    device_used_high_bytes = models.BigIntegerField(null=True, blank=True)
    step_seconds_low = models.FloatField(null=True, blank=True)
    step_seconds_high = models.FloatField(null=True, blank=True)
    breakdown = models.JSONField(default=dict, blank=True)
    alloc_retries = models.PositiveIntegerField(null=True, blank=True)
    failure = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"batch {self.batch_size} {'fits' if self.fits else 'does not fit'}"


class LogLine(models.Model):
    """One line the engine said while it worked, as the terminal on the page shows it."""

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="log_lines")
    level = models.CharField(max_length=10, default="info")
    message = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.message
