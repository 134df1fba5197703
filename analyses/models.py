"""What is stored of every analysis. The row is the truth; the queue carries its id only."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.notifications.address import LONGEST_URL


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
    ("model",),
    ("gpu", "measured_gpu"),
    ("precision",),
    ("optimizer",),
    ("recommended_batch_size",),
    ("largest_batch_size",),
    ("speedup",),
    ("usd_per_year",),
    ("source",),
    ("status",),
    ("owner",),
    ("queued_at",),
)
"""What the history sorts or filters by: an index for each, since a row with its JSON is long."""


class Analysis(models.Model):
    """One submitted question, its status and its answer.

    ``request`` holds the flat fields of ``engine.request.AnalysisRequest`` and ``result`` those of
    ``engine.result.AnalysisResult``. The columns beside them repeat what lists sort and filter by.

    ``measured_gpu`` is the name of the GPU to measure on; empty for a prediction. ``attempt``
    counts the workers that have taken it, ``losses`` those that vanished with it, and ``node`` is
    where the last of them runs. While it is
    measured, ``device`` is the UUID of the GPU it holds; one GPU is never held twice.
    ``question`` is equal for analyses with the same answer, and empty where there may be none.
    ``cancelled_by`` is who has asked for its end.

    ``workload_key`` is equal for analyses of the same workload on the same GPU. ``adopted_at`` is
    when ``adopted_by`` said that the recommended batch is trained with; empty until then.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="analyses"
    )
    request = models.JSONField()
    model = models.CharField(max_length=500)
    gpu = models.CharField(max_length=100)
    precision = models.CharField(max_length=20)
    optimizer = models.CharField(max_length=20)
    current_batch_size = models.PositiveIntegerField()

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
            models.Index(fields=("status", "owner", "workload_key", "adopted_at")),
            *(models.Index(fields=(*fields, "-id")) for fields in SORTED_BY),
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


class Tag(models.Model):
    """A word that members sort analyses by, the same for the whole lab; in small letters."""

    LONGEST = 40
    name = models.CharField(max_length=LONGEST, unique=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Note(models.Model):
    """What members have written about an analysis, and who wrote last.

    Not a column of the analysis: to search all notes would be to read all rows with their JSON.
    """

    LONGEST = 10_000
    analysis = models.OneToOneField(Analysis, on_delete=models.CASCADE, primary_key=True)
    text = models.TextField(max_length=LONGEST)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    edited_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"note on analysis {self.pk}"


class SavedView(models.Model):
    """A name for what an address of the history shows; of one member, for all if ``is_shared``.

    ``query`` is the address's fields as :func:`analyses.history.table.query_of` spells them.
    """

    LONGEST_NAME = 60
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    name = models.CharField(max_length=LONGEST_NAME)
    query = models.TextField(blank=True)
    is_shared = models.BooleanField(default=False)

    class Meta:
        ordering = ("name", "id")
        constraints = (
            models.UniqueConstraint(fields=("owner", "name"), name="one_view_by_a_name"),
        )

    def __str__(self) -> str:
        return self.name


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


class Node(models.Model):
    """A machine whose worker runs analyses, with its GPU and its last sign of life.

    ``versions`` names what runs there. A node that is ``draining`` takes nothing new and starts
    again when it has nothing left. ``problem`` says what keeps it from working, in words.
    """

    name = models.CharField(max_length=200, unique=True)
    gpu_name = models.CharField(max_length=200, blank=True)
    gpu_uuid = models.CharField(max_length=100, blank=True)
    gpu_total_bytes = models.BigIntegerField(null=True, blank=True)
    driver = models.CharField(max_length=100, blank=True)
    memory_bytes = models.BigIntegerField(null=True, blank=True)
    versions = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField()
    draining = models.BooleanField(default=False)
    problem = models.TextField(blank=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


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
