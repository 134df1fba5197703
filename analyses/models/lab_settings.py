"""Lab-wide settings of the admins: analysis defaults and GPU prices."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from engine.interface.assumptions import Assumptions


class ChannelFormat(models.TextChoices):
    """The formats of messages to the lab's channel."""

    SLACK = "slack", "Slack"
    MATTERMOST = "mattermost", "Mattermost"
    TEAMS = "teams", "Microsoft Teams"


class LabSettings(models.Model):
    """The defaults of a new analysis; at most one row, with the primary key :attr:`ONLY`.

    ``hours_per_run`` is in GPU-hours. ``grid_co2e_grams_per_kwh`` is what the electricity of the
    lab's GPUs emits. ``sharing_allowed`` is whether members may show an analysis
    to people outside the lab. ``channel_url`` is the incoming webhook of the lab's channel, in
    ``channel_format``; empty without one. Who knows it can post there.
    """

    ONLY = 1

    hours_per_run = models.FloatField(default=Assumptions.hours_per_run)
    runs_per_year = models.FloatField(default=Assumptions.runs_per_year)
    grid_co2e_grams_per_kwh = models.FloatField(default=Assumptions.grid_co2e_grams_per_kwh)
    sharing_allowed = models.BooleanField(default=True)
    channel_format = models.CharField(max_length=20, choices=ChannelFormat, blank=True)
    channel_url = models.CharField(max_length=2000, blank=True)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "lab settings"

    def __str__(self) -> str:
        return "lab settings"


class AddedGpu(models.Model):
    """A GPU that an admin has added to the catalogue by its data sheet.

    ``name`` is its name in requests. ``sheet`` holds the fields of
    :class:`engine.gpus.data_sheet.DataSheet`. A removed one is not offered any more, but stays:
    stored analyses name it.
    """

    name = models.CharField(max_length=100, unique=True)
    sheet = models.JSONField()
    added_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    added_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    changed_at = models.DateTimeField(null=True)
    removed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    removed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("id",)
        verbose_name = "added GPU"

    def __str__(self) -> str:
        return str(self.sheet.get("name", self.name))


class GpuPrice(models.Model):
    """A change of a GPU's price; the latest one applies, the others are its history.

    ``gpu`` is a name of the catalogue, or the driver's name of a node's GPU that is not in it.
    Without ``price_per_hour_usd`` the catalogue's price applies again.
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
