"""The queue: jobs, the engine queries that some of them answer, and the nodes that run them."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models.functions import Now

from analyses.models.states import AT_WORK, SHARED, QueryStatus, Status


class JobKind(models.TextChoices):
    """The kinds of work; :data:`analyses.jobs.kinds.KINDS` says how they differ."""

    ANALYSIS = "analysis", "Analysis"
    PREDICT = "predict", "Prediction"
    PLAN = "plan", "Plan"
    NOTIFICATION = "notification", "Notification"
    SELF_CHECK = "self-check", "Self-check"


MAX_SOFTWARE_LENGTH = 500
"""Characters, more than a version of each package takes."""


class Job(models.Model):
    """One piece of work: both the entry in the queue and the record of the worker that holds it.

    Its subject is one row: an analysis, a query, a notification, or a node that checks itself. It
    waits in its ``lane``, higher ``priority`` first, until ``not_before`` at least. ``owner`` is
    the analysis's, so that members'
    turns are read from an index however many jobs wait. The worker that takes it gets a new
    ``token``, which every later write must match, and renews ``heartbeat_at``. ``attempts`` counts
    the workers that took it; ``losses`` those that vanished with it, and failures that were tried
    again. ``device`` is the UUID of the GPU that it measures on. ``key`` is a fingerprint of the
    ``SECRET_KEY`` of the process that queued it. ``software`` is what its workload has to run with,
    as ``engine.interface.workload.Workload`` has it; only nodes that offer it take the job.
    """

    kind = models.CharField(max_length=20, choices=JobKind)
    lane = models.CharField(max_length=220)
    priority = models.PositiveSmallIntegerField(default=0)
    state = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    not_before = models.DateTimeField(db_default=Now())
    key = models.CharField(max_length=16, blank=True)
    software = models.CharField(max_length=MAX_SOFTWARE_LENGTH, blank=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )

    token = models.CharField(max_length=32, blank=True)
    node = models.CharField(max_length=200, blank=True)
    device = models.CharField(max_length=100, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    losses = models.PositiveSmallIntegerField(default=0)

    queued_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    analysis = models.OneToOneField(
        "Analysis", on_delete=models.CASCADE, null=True, blank=True, related_name="job"
    )
    query = models.OneToOneField(
        "Query", on_delete=models.CASCADE, null=True, blank=True, related_name="job"
    )
    notification = models.OneToOneField(
        "Notification", on_delete=models.CASCADE, null=True, blank=True, related_name="job"
    )
    checked_node = models.OneToOneField(
        "Node", on_delete=models.CASCADE, null=True, blank=True, related_name="check_job"
    )

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("state", "lane", "-priority", "owner", "id"), name="waiting_jobs"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("device",),
                condition=models.Q(state__in=AT_WORK) & ~models.Q(device=""),
                name="one_measurement_per_gpu",
            ),
        )

    def __str__(self) -> str:
        return f"job {self.pk}: {self.kind} {self.subject_id}"

    @property
    def subject_id(self) -> int:
        subjects = (self.analysis_id, self.query_id, self.notification_id, self.checked_node_id)
        return next(filter(None, subjects), 0)


class QueryKind(models.TextChoices):
    """The kinds of query; the values are those of ``engine.run.Command``."""

    PREDICT = "predict", "one batch size on one GPU"
    PLAN = "plan", "every GPU, and what changes would buy"


class Query(models.Model):
    """A request for a prediction of one batch size or for a plan, shared by all its askers.

    ``request_hash`` is equal for queries with the same answer; empty if the answer may differ.
    ``request`` holds the flat fields of ``engine.interface.request.AnalysisRequest``, ``answer``
    the body of ``engine.events.Answer``, and ``failure`` a ``code``, a ``reason`` and messages by
    ``fields``. ``progress`` is the engine's last progress message, and ``rungs`` what it has found
    of a plan's ladder so far (``engine.answer.ladder.Rung``), as they came; the answer has them in
    order. ``is_taken_over`` is whether the analyses that a plan is about have its decision.

    ``for_pages``: only pages need it, so it is dropped when those pages are closed; ``asked_at``
    is when one last requested it. ``status`` and ``node`` are those of its job.
    """

    kind = models.CharField(max_length=20, choices=QueryKind)
    request_hash = models.CharField(max_length=64, blank=True)
    request = models.JSONField()
    askers: models.ManyToManyField[User, models.Model] = models.ManyToManyField(
        settings.AUTH_USER_MODEL, related_name="queries"
    )
    for_pages = models.BooleanField(default=False)

    status = models.CharField(max_length=20, choices=QueryStatus, default=QueryStatus.WAITING)
    answer = models.JSONField(null=True, blank=True)
    failure = models.JSONField(null=True, blank=True)
    progress = models.TextField(blank=True)
    rungs = models.JSONField(default=list, blank=True)
    is_taken_over = models.BooleanField(default=False, db_default=False)

    created_at = models.DateTimeField(db_default=Now())
    asked_at = models.DateTimeField(db_default=Now(), db_index=True)
    node = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "queries"
        constraints = (
            models.UniqueConstraint(
                fields=("request_hash",),
                condition=models.Q(status__in=SHARED) & ~models.Q(request_hash=""),
                name="one_query_of_a_request",
            ),
        )

    def __str__(self) -> str:
        return f"query {self.pk}: {self.kind} {self.request.get('model')}"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status not in (QueryStatus.WAITING, QueryStatus.RUNNING)


class Node(models.Model):
    """A machine whose worker runs analyses, with its GPU and its last heartbeat.

    ``versions`` are those of its own software, ``environments`` those of others that it offers, by
    the name of the environment. A node that is ``draining`` takes no new work and
    restarts when it has none left. ``key`` is a fingerprint of its ``SECRET_KEY``; ``problem`` is
    what a node of an earlier version reports instead. ``self_check`` is that of its last self-check
    (:class:`analyses.gpus.self_checks.Stored`); ``None`` until one has ended.
    """

    name = models.CharField(max_length=200, unique=True)
    gpu_name = models.CharField(max_length=200, blank=True)
    gpu_uuid = models.CharField(max_length=100, blank=True)
    gpu_total_bytes = models.BigIntegerField(null=True, blank=True)
    driver = models.CharField(max_length=100, blank=True)
    memory_bytes = models.BigIntegerField(null=True, blank=True)
    versions = models.JSONField(default=dict, blank=True)
    environments = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField()
    draining = models.BooleanField(default=False)
    key = models.CharField(max_length=16, blank=True, db_default="")
    problem = models.TextField(blank=True)
    self_check = models.JSONField(null=True, blank=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
