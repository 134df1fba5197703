"""The tags that members group analyses by."""

from __future__ import annotations

from django.db import models


class Tag(models.Model):
    """A lower-case word that members group analyses by, shared by the whole lab."""

    MAX_LENGTH = 40
    name = models.CharField(max_length=MAX_LENGTH, unique=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
