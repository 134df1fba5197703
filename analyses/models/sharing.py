"""Links that show one analysis to people without an account."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis


class ShareLink(models.Model):
    """One link; :mod:`analyses.sharing.links` says when it is live.

    Only ``digest``, the SHA-256 of its token, is stored: who reads the database has no link.
    ``times_seen`` counts how often its page was shown.
    """

    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, related_name="share_links")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    times_seen = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ("expires_at", "id")

    def __str__(self) -> str:
        return f"link to analysis {self.analysis_id}"
