"""Counted savings: one row per workload, and one per training run that verifies it."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis, FigureSource
from analyses.models.imports import TrainingRun
from analyses.models.projects import Project

NO_RUN_YET = 3_652_059
"""The last day there is, 9999-12-31: until then nothing but assumptions is known."""

ADDED_UP_BY = (("member",), ("model",), ("gpu", "measured_gpu"), ("month",), ("project",))
"""Columns that totals are grouped by. Each has an index that covers the summed columns, so a group
is read in one piece and nothing is sorted."""

_ADDED_UP = (
    "is_realised", "is_verified", "source", "usd_per_year", "usd_per_year_low",
    "usd_per_year_high", "gpu_hours_per_year", "kwh_per_year", "kg_co2e_per_year", "since_day",
    "assumed_until",
)  # fmt: skip

_ACCRUED = (
    "since_day", "assumed_until", "usd_per_year", "usd_per_year_low", "usd_per_year_high",
    "gpu_hours_per_year",
)  # fmt: skip


class CountedSavings(models.Model):
    """The savings of one workload on one GPU, and the analysis they are taken from.

    It repeats columns of the analysis, so that sums read these short rows and not those with JSON;
    the constraint makes a workload count once for the lab, however many members analyze it. Only
    :mod:`analyses.savings.aggregation` writes it.

    ``member`` is who adopted the analysis; its owner, where nothing is adopted or that account is
    gone. ``month`` is the first day (UTC) of the adoption's month, or of the answer's if nothing is
    adopted, and ``since_day`` that day itself, as ``date.toordinal`` counts. Savings accrue by
    assumption from the day after it to ``assumed_until``: the day before the first training run
    that verifies them, or :data:`NO_RUN_YET`.

    What counts is ``usd_per_year``, between ``usd_per_year_low`` and ``usd_per_year_high``, which
    follow from the speedup's interval. ``at_low_end`` is whether it is the low end, by
    :func:`analyses.savings.certainty.counts_at_low_end`; hours and energy then are too. Without a
    speedup, savings of money and hours are 0, and those of energy empty, as they are where the
    GPU's power is not known.
    """

    analysis = models.OneToOneField(
        Analysis, on_delete=models.CASCADE, primary_key=True, related_name="counted_savings"
    )
    workload_key = models.CharField(max_length=64, unique=True)
    member = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    model = models.CharField(max_length=500)
    gpu = models.CharField(max_length=100)
    measured_gpu = models.CharField(max_length=200, blank=True)
    project = models.ForeignKey(
        Project,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    month = models.DateField()
    since_day = models.IntegerField()
    assumed_until = models.IntegerField(default=NO_RUN_YET)
    is_realised = models.BooleanField()
    is_verified = models.BooleanField(default=False)
    source = models.CharField(max_length=20, choices=FigureSource)
    at_low_end = models.BooleanField(default=False)
    usd_per_year = models.FloatField()
    usd_per_year_low = models.FloatField()
    usd_per_year_high = models.FloatField()
    gpu_hours_per_year = models.FloatField()
    kwh_per_year = models.FloatField(null=True)
    kg_co2e_per_year = models.FloatField(null=True)

    class Meta:
        indexes = (
            models.Index(fields=("-usd_per_year", "-analysis"), name="largest_savings"),
            models.Index(fields=("is_realised", *_ACCRUED), name="accruing_savings"),
            *(models.Index(fields=(*columns, *_ADDED_UP)) for columns in ADDED_UP_BY),
        )
        verbose_name_plural = "counted savings"

    def __str__(self) -> str:
        return f"savings of analysis {self.pk}"


class SavingsChange(models.Model):
    """A change of counted savings, so that totals are added up once until the next one.

    ``mark`` is random: the sum of all marks is another one after each change, whatever the order in
    which transactions commit. Only the last few are kept.
    """

    mark = models.BigIntegerField()

    def __str__(self) -> str:
        return f"change {self.pk} of counted savings"


class RunSavings(models.Model):
    """Savings of one training run that verifies a realised workload.

    ``day`` is when it ended (UTC), as ``date.toordinal`` counts. The other columns are those of the
    workload's :class:`CountedSavings`, so that both are filtered alike. Only
    :mod:`analyses.savings.aggregation` writes it.
    """

    training = models.OneToOneField(
        TrainingRun, on_delete=models.CASCADE, primary_key=True, related_name="savings"
    )
    workload_key = models.CharField(max_length=64, db_index=True)
    member = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    model = models.CharField(max_length=500)
    gpu = models.CharField(max_length=100)
    measured_gpu = models.CharField(max_length=200, blank=True)
    project = models.ForeignKey(
        Project,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    month = models.DateField()
    is_realised = models.BooleanField(default=True)
    day = models.IntegerField()
    usd = models.FloatField()
    usd_low = models.FloatField()
    usd_high = models.FloatField()
    gpu_hours = models.FloatField()

    class Meta:
        indexes = (
            models.Index(
                fields=("day", "usd", "usd_low", "usd_high", "gpu_hours"), name="saved_by_day"
            ),
        )
        verbose_name_plural = "run savings"

    def __str__(self) -> str:
        return f"savings of training run {self.pk}"
