"""What members put on analyses and on the history to find them again."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis


class Tag(models.Model):
    """A word that members sort analyses by, the same for the whole lab; in small letters."""

    LONGEST = 40
    name = models.CharField(max_length=LONGEST, unique=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Note(models.Model):
    """What members have written about an analysis, and who wrote last.

    Not a column of the analysis: to search all notes would be to read all rows with their JSON.
    """

    LONGEST = 10_000
    analysis = models.OneToOneField(Analysis, on_delete=models.CASCADE, primary_key=True)
    text = models.TextField(max_length=LONGEST)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    edited_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"note on analysis {self.pk}"


class SavedView(models.Model):
    """A name for what an address of the history shows; of one member, for all if ``is_shared``.

    ``query`` is the address's fields as :func:`analyses.history.table.query_of` spells them.
    """

    LONGEST_NAME = 60
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    name = models.CharField(max_length=LONGEST_NAME)
    query = models.TextField(blank=True)
    is_shared = models.BooleanField(default=False)

    class Meta:
        ordering = ("name", "id")
        constraints = (
            models.UniqueConstraint(fields=("owner", "name"), name="one_view_by_a_name"),
        )

    def __str__(self) -> str:
        return self.name
