"""Training jobs that schedulers and experiment trackers have seen."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from engine.jobs.record import Reporter


class TrainingJob(models.Model):
    """A training job as its reporter knows it: who, on which GPU, how long, how much memory.

    ``reporter`` and ``external_id`` identify it, so that a job reported twice is one row. The other
    columns are as in :class:`engine.jobs.record.JobRecord`; only
    :mod:`analyses.training_jobs.services` writes them.

    ``owner`` is the member whose it is; ``None`` while no member has the reported ``user``. ``gpu``
    is a name of the catalogue, empty where the reported ``device_name`` matches none.
    ``total_bytes`` is the memory of one of its GPUs, reported or else of the catalogue. ``model``
    is that of ``request``, empty if it names none.

    ``gpu_hours``, ``used_byte_hours`` and ``unused_byte_hours`` are what totals add up: the hours
    of all its GPUs, and those times the memory used and unused; the latter two are ``None`` where
    either memory is unknown.

    ``slurm_job_id`` and ``hosts`` tell which scheduler's job a tracker's run is part of:
    ``scheduler_job``, with which it counts. ``from_runs`` are the columns that a job has taken over
    from such runs; :mod:`analyses.training_jobs.matching` writes both.
    """

    reporter = models.CharField(max_length=20)
    external_id = models.CharField(max_length=200)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="training_jobs",
    )
    user = models.CharField(max_length=200, blank=True)
    name = models.CharField(max_length=200, blank=True)
    gpu = models.CharField(max_length=100, blank=True)
    device_name = models.CharField(max_length=200, blank=True)
    gpus = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(db_index=True)
    is_running = models.BooleanField(default=False)
    total_bytes = models.BigIntegerField(null=True, blank=True)
    used_bytes = models.BigIntegerField(null=True, blank=True)
    samples_per_second = models.FloatField(null=True, blank=True)
    model = models.CharField(max_length=500, blank=True)
    request = models.JSONField(default=dict)
    gpu_hours = models.FloatField()
    used_byte_hours = models.FloatField(null=True, blank=True)
    unused_byte_hours = models.FloatField(null=True, blank=True)
    slurm_job_id = models.CharField(max_length=200, blank=True, db_index=True)
    hosts = models.JSONField(default=list)
    scheduler_job = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    from_runs = models.JSONField(default=list)
    imported_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    imported_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("reporter", "external_id"), name="one_row_of_a_training_job"
            ),
        )

    def __str__(self) -> str:
        return f"{self.reporter_name} {self.external_id}"

    @property
    def reporter_name(self) -> str:
        return Reporter(self.reporter).label
