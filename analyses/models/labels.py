"""Members' additions to analyses: notes, saved views of the history, and share links."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis


class Note(models.Model):
    """A text about an analysis, and the member who edited it last.

    Not a column of the analysis: a search of all notes would read all rows with their JSON.
    """

    MAX_LENGTH = 10_000
    analysis = models.OneToOneField(Analysis, on_delete=models.CASCADE, primary_key=True)
    text = models.TextField(max_length=MAX_LENGTH)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    edited_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"note on analysis {self.pk}"


class SavedView(models.Model):
    """A name for a URL query of the history; only for its owner, or for all if ``is_shared``.

    ``query`` is what :func:`analyses.pages.history.address.query_of` gives.
    """

    MAX_NAME_LENGTH = 60
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    name = models.CharField(max_length=MAX_NAME_LENGTH)
    query = models.TextField(blank=True)
    is_shared = models.BooleanField(default=False)

    class Meta:
        ordering = ("name", "id")
        constraints = (
            models.UniqueConstraint(fields=("owner", "name"), name="one_view_by_a_name"),
        )

    def __str__(self) -> str:
        return self.name


class ShareLink(models.Model):
    """A link that shows one analysis without login; see :mod:`analyses.pages.analysis.sharing`.

    Only ``digest``, the SHA-256 of its token, is stored: reading the database gives no link.
    ``times_seen`` counts the views of its page.
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
