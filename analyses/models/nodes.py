"""The machines that run analyses."""

from __future__ import annotations

from django.db import models


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
