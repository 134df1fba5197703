"""What was pushed into the lab: where an analysis comes from that no worker of it has run."""

from __future__ import annotations

from django.db import models

from analyses.models.analysis import Analysis


class Push(models.Model):
    """That an analysis ran elsewhere and was pushed by its owner, and where.

    ``document_id`` is made by who pushes, so that the same push twice is stored once; ``digest`` is
    of the document, to tell the same push from another one. ``host`` and ``ran`` are what the
    machine says of itself and of what ran there: nobody has checked them.
    """

    analysis = models.OneToOneField(
        Analysis, on_delete=models.CASCADE, primary_key=True, related_name="push"
    )
    document_id = models.UUIDField(unique=True)
    digest = models.CharField(max_length=64)
    host = models.CharField(max_length=200)
    ran = models.CharField(max_length=200)
    received_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "pushes"

    def __str__(self) -> str:
        return f"analysis {self.pk} from {self.host}"


def pushed_from(analysis: Analysis) -> str | None:
    """The host that an analysis was pushed from; ``None`` of the lab's own."""
    push: Push | None = getattr(analysis, "push", None)
    return push.host if push else None
