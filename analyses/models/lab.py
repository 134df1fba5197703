"""What an admin sets for the whole lab: the defaults of an analysis, and what GPUs cost."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from engine.request import Assumptions


class LabSettings(models.Model):
    """What holds in the lab until an analysis says otherwise; at most one row, with :attr:`ONLY`.

    ``hours_per_run`` (GPU-hours) and ``runs_per_year`` are the engine's until an admin sets them.
    ``sharing_allowed`` is whether members may show an analysis to people outside the lab.
    """

    ONLY = 1
    """The primary key of the one row."""

    hours_per_run = models.FloatField(default=Assumptions.hours_per_run)
    runs_per_year = models.FloatField(default=Assumptions.runs_per_year)
    sharing_allowed = models.BooleanField(default=True)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "lab settings"

    def __str__(self) -> str:
        return "lab settings"


class GpuPrice(models.Model):
    """That somebody has set what a GPU costs; the latest of a GPU holds, the others are the log.

    ``gpu`` is a name of the catalogue, or the kind of a node's GPU that the catalogue does not
    have. Without ``price_per_hour_usd`` the catalogue's price holds again.
    """

    gpu = models.CharField(max_length=200)
    price_per_hour_usd = models.FloatField(null=True)
    set_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    set_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("gpu", "-id")),)

    def __str__(self) -> str:
        return f"price of {self.gpu}"
