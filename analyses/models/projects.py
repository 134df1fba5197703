"""The projects that a lab's analyses belong to."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Lower


class Project(models.Model):
    """A name for what analyses are for, shared by the whole lab; letters in any case are equal."""

    MAX_LENGTH = 60
    name = models.CharField(max_length=MAX_LENGTH)

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(Lower("name"), name="one_project_by_a_name"),)

    def __str__(self) -> str:
        return self.name
