"""Analyses with their trials and log lines."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from analyses.models.jobs import MAX_SOFTWARE_LENGTH
from analyses.models.projects import Project
from analyses.models.states import FINAL_STATUSES, Status
from analyses.models.tags import Tag
from engine.core.errors import DoesNotFit
from memorymark_site.operations.log import MAX_REQUEST_ID_LENGTH


class FigureSource(models.TextChoices):
    """The source of a number; the values are those of ``engine.interface.trial.Source``."""

    MEASURED = "measured", "Measured"
    PREDICTED = "predicted", "Predicted"
    COMPUTED = "computed", "Computed"
    ASSUMED = "assumed", "Assumed"


SORTED_BY = (
    ("optimizer",),
    ("recommended_batch_size",),
    ("largest_batch_size",),
    ("speedup",),
    ("usd_per_year",),
    ("source",),
)
"""Columns the history sorts by without filtering by them. (PostgreSQL has more indexes, for the
nullable ones: see the migration of counted savings.)"""

FILTERED_BY = (
    (),
    ("status",),
    ("owner",),
    ("queued_at",),
    ("software",),
    ("precision",),
    ("model",),
    ("gpu", "measured_gpu"),
    ("project",),
)
"""Columns the history filters and sorts by; the first index is for no filter at all.

The order matters: of several indexes that fit, SQLite, which has no statistics here, takes the one
created last. So status, which most analyses share, comes before software, precision, model, GPU and
project.

Each index covers all columns of a list, so a page with any filters is found and counted within one
index. A row has up to 70 kB of JSON; reading ten thousand rows took half a second.
"""

_LISTED = (
    "model", "gpu", "measured_gpu", "precision", "software", "status", "owner", "queued_at",
    "adopted_at",
    *(column for columns in SORTED_BY for column in columns),
)  # fmt: skip


def _listing(columns: tuple[str, ...]) -> tuple[str, ...]:
    rest = (column for column in _LISTED if column not in columns)
    return (*columns, "-id", *rest)


OF_A_PROGRAM = models.Q(program_hash__gt="")
"""The analyses of scripts, in the words of their index, which SQLite only then uses."""


DOES_NOT_FIT = models.Q(status=Status.FAILED, failure_code=DoesNotFit.code)
"""The analyses whose answer is that not even the smallest batch fits."""

OUTCOMES = [*Status.choices, (DoesNotFit.code, "Does not fit")]
"""Outcomes that analyses are searched by, each with its label; one that does not fit has failed
too, for programs that know no other."""


def with_outcome(name: str) -> models.Q:
    """The analyses with one of :data:`OUTCOMES`."""
    return DOES_NOT_FIT if name == DoesNotFit.code else models.Q(status=name)


WITH_ANSWER = models.Q(status=Status.SUCCEEDED) | (
    DOES_NOT_FIT & models.Q(recommended_batch_size__isnull=False)
)
"""The analyses that have an answer: their own, or the changes with which they fit."""


class Analysis(models.Model):
    """One submitted request, its status and its result.

    ``request`` holds the flat fields of ``engine.interface.request.AnalysisRequest``, or of
    ``engine.interface.program.ProgramRequest``, and ``result`` those of
    ``engine.interface.result.AnalysisResult``, or of the decision's (:class:`Decided`).

    ``model`` is the name of the subject. For somebody's script, ``program_hash`` tells it from
    others of that name, and precision and optimizer, which its code decides, are empty.

    Further columns repeat what lists sort and filter by. ``assumed_by`` names the source of hours,
    runs and price; see :class:`analyses.lab.settings.Settled`.

    ``measured_gpu`` is the name of the GPU to measure on; empty for a prediction. ``status``, the
    times, ``attempt`` and ``node`` repeat the job's, since lists filter and sort by them; only
    :func:`analyses.jobs.lifecycle.move` writes them. ``environment`` is what it ran with, from
    :func:`analyses.jobs.nodes.environment_here`; empty until a worker takes it.

    ``current_batch_size`` is empty where the owner had no batch yet.
    ``request_hash`` is equal for analyses with the same answer; empty if the answer may differ.
    ``recipe`` has the fields of ``engine.recipes.Recipe.to_dict``; empty without one.
    ``request_id`` is that of the web request that submitted it, to find its log lines.
    ``has_gain`` is whether ``speedup`` exceeds the noise; empty without a speedup.
    ``goal`` is that of the request. ``longest_tokens`` is the longest text that fits, where texts
    are the goal; ``result`` then holds the fields of ``engine.interface.texts.TextResult``.
    ``worst_tokens`` and ``padding`` are those of ``engine.interface.result.BatchLengths``; empty
    where all samples are of one length. ``workload_key`` is equal for analyses of the same workload
    on the same GPU. ``adopted_at`` is when ``adopted_by`` marked the recommendation as adopted.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="analyses"
    )
    request = models.JSONField()
    goal = models.CharField(max_length=20, default="batch")
    assumed_by = models.JSONField(default=dict, blank=True)
    recipe = models.JSONField(null=True, blank=True)
    model = models.CharField(max_length=500)
    program_hash = models.CharField(max_length=64, blank=True, default="", db_default="")
    gpu = models.CharField(max_length=100)
    precision = models.CharField(max_length=20, blank=True)
    software = models.CharField(max_length=MAX_SOFTWARE_LENGTH, blank=True)
    optimizer = models.CharField(max_length=20, blank=True)
    current_batch_size = models.PositiveIntegerField(null=True, blank=True)

    request_id = models.CharField(max_length=MAX_REQUEST_ID_LENGTH, blank=True)
    measured_gpu = models.CharField(max_length=200, blank=True)
    request_hash = models.CharField(max_length=64, blank=True)
    workload_key = models.CharField(max_length=64, blank=True)
    answered_from = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    queued_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    attempt = models.PositiveSmallIntegerField(default=0)
    node = models.CharField(max_length=200, blank=True)
    environment = models.JSONField(default=dict, blank=True)

    failure_code = models.CharField(max_length=40, blank=True)
    failure_reason = models.TextField(blank=True)
    cancelled_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    tags: models.ManyToManyField[Tag, models.Model] = models.ManyToManyField(
        Tag, related_name="analyses", blank=True
    )
    project = models.ForeignKey(
        Project,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="analyses",
        db_index=False,
    )

    result = models.JSONField(null=True, blank=True)
    source = models.CharField(max_length=20, choices=FigureSource, blank=True)
    largest_batch_size = models.PositiveIntegerField(null=True, blank=True)
    recommended_batch_size = models.PositiveIntegerField(null=True, blank=True)
    speedup = models.FloatField(null=True, blank=True)
    has_gain = models.BooleanField(null=True, blank=True)
    longest_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    worst_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    padding = models.FloatField(null=True, blank=True)
    usd_per_year = models.FloatField(null=True, blank=True)
    gpu_hours_per_year = models.FloatField(null=True, blank=True)
    kwh_per_year = models.FloatField(null=True, blank=True)
    kg_co2e_per_year = models.FloatField(null=True, blank=True)
    adopted_at = models.DateTimeField(null=True, blank=True)
    adopted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "analyses"
        indexes = (
            models.Index(fields=("request_hash", "status")),
            models.Index(fields=("finished_at",)),  # to see whether the queue stands still
            models.Index(fields=("workload_key", "status", "adopted_at")),
            models.Index(fields=("-id",), name="by_number"),  # short, to skip to the last page
            *(models.Index(fields=(*columns, "-id")) for columns in SORTED_BY),
            *(models.Index(fields=_listing(columns)) for columns in FILTERED_BY),
            models.Index(
                fields=("program_hash", "-id"), condition=OF_A_PROGRAM, name="of_a_program"
            ),
            models.Index(
                fields=("-id", "adopted_at"),
                condition=models.Q(adopted_at__isnull=False),
                name="adopted_ones",
            ),
        )

    def __str__(self) -> str:
        return f"analysis {self.pk}: {self.model} on {self.gpu}"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in FINAL_STATUSES

    @property
    def has_answer(self) -> bool:
        """Whether it is one of :data:`WITH_ANSWER`."""
        is_decided = self.does_not_fit and self.recommended_batch_size is not None
        return self.status == Status.SUCCEEDED or is_decided

    @property
    def ended_without_answer(self) -> bool:
        return self.is_final and not self.has_answer

    @property
    def does_not_fit(self) -> bool:
        """Whether it is one of :data:`DOES_NOT_FIT`."""
        return outcome_of(self.status, self.failure_code) == DoesNotFit.code

    @property
    def outcome(self) -> str:
        """Its status, or ``does_not_fit`` where that is the answer."""
        return outcome_of(self.status, self.failure_code)

    @property
    def outcome_label(self) -> str:
        """The same in words, as all pages and messages have it."""
        return str(dict(OUTCOMES)[self.outcome])


def outcome_of(status: str, failure_code: str) -> str:
    """The outcome of an analysis, from its columns."""
    is_answer = status == Status.FAILED and failure_code == DoesNotFit.code
    return DoesNotFit.code if is_answer else status


class Decided(models.Model):
    """A decision with more moves than the batch: advised by a plan, or adopted with its analysis.

    Its result takes the place of the analysis's own in every column, so that pages, totals and the
    API show what is decided. ``before`` keeps these columns, to undo it; they are empty where
    today's settings do not fit. ``moves`` and ``fields`` are those of the
    ``engine.answer.ladder.Rung``; ``used_bytes`` is the GPU memory used at its batch, where a
    version that stored it did.
    """

    analysis = models.OneToOneField(
        Analysis, on_delete=models.CASCADE, primary_key=True, related_name="decided"
    )
    moves = models.JSONField()
    fields = models.JSONField()
    before = models.JSONField()
    used_bytes = models.BigIntegerField(null=True, blank=True)

    def __str__(self) -> str:
        return f"decision of analysis {self.pk}: {', '.join(self.moves)}"


class Trial(models.Model):
    """One batch size tried in an analysis.

    The fields are those of ``engine.interface.trial.Trial``; ``attempt`` is the analysis's attempt
    that reported it.
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
    operations_seconds = models.FloatField(null=True, blank=True)
    breakdown = models.JSONField(default=dict, blank=True)
    alloc_retries = models.PositiveIntegerField(null=True, blank=True)
    failure = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(
                fields=("-id",),
                condition=models.Q(source=FigureSource.MEASURED),
                name="measured_steps",
            ),
        )

    def __str__(self) -> str:
        return f"batch {self.batch_size} {'fits' if self.fits else 'does not fit'}"


class LogLine(models.Model):
    """One line of the engine's log, as the page of the analysis shows it.

    ``level`` is ``info``, ``warning`` or :data:`STAGE`: what the analysis does from then on.
    """

    STAGE = "stage"

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="log_lines")
    level = models.CharField(max_length=10, default="info")
    message = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.message
