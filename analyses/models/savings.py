"""Which analyses count as savings: a short row for each, so that the lab's are added up quickly."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis, FigureSource

ADDED_UP_BY = (("owner",), ("model",), ("gpu", "measured_gpu"), ("month",))
"""What totals are taken apart by: an index for each that holds the sums' columns besides, so that
each group is read in one piece and nothing is sorted."""

_ADDED_UP = ("is_realised", "source", "usd_per_year", "gpu_hours_per_year")


class CountedSavings(models.Model):
    """What one workload on one GPU of one owner counts as, and the analysis it counts by.

    It repeats columns of the analysis, whose row is long with its JSON: sums over a lab's savings
    read these short rows alone, and that a workload counts once for its owner the database holds.
    :mod:`analyses.savings.counting` writes it, and nothing else does.

    ``month`` is the first day (UTC) of the month of the adoption, or of the answer where nothing is
    adopted. Money is USD per year and time GPU-hours per year; what has no speedup saves 0.
    """

    analysis = models.OneToOneField(
        Analysis, on_delete=models.CASCADE, primary_key=True, related_name="counted_savings"
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    workload_key = models.CharField(max_length=64)
    model = models.CharField(max_length=500)
    gpu = models.CharField(max_length=100)
    measured_gpu = models.CharField(max_length=200, blank=True)
    month = models.DateField()
    is_realised = models.BooleanField()
    source = models.CharField(max_length=20, choices=FigureSource)
    usd_per_year = models.FloatField()
    gpu_hours_per_year = models.FloatField()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "workload_key"), name="a_workload_counts_once_for_its_owner"
            ),
        )
        indexes = (
            # With what a file of them reads, so that PostgreSQL need not sort them all for it.
            models.Index(
                fields=("-usd_per_year", "-analysis", "month", "is_realised"),
                name="largest_savings",
            ),
            *(models.Index(fields=(*columns, *_ADDED_UP)) for columns in ADDED_UP_BY),
        )
        verbose_name_plural = "counted savings"

    def __str__(self) -> str:
        return f"savings of analysis {self.pk}"
