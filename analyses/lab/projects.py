"""Projects of analyses, which every member of the lab may read and set, like tags."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef

from analyses.bodies import storable
from analyses.models import Analysis, Project

NO_PROJECT = "none"
"""Stands in addresses for analyses without a project, so no project has this name."""


class BadProject(ValueError):
    """A text cannot be a project's name; the message says what to change."""


def project_name(text: str) -> str:
    """The name as it is stored, without spaces at its ends; empty for no project.

    Raises:
        BadProject: It is too long, means no project, or cannot be stored.
    """
    name = " ".join(text.split())
    if storable(name) != name:
        raise BadProject("it contains a NUL or half a surrogate pair. Remove it")
    if len(name) > Project.MAX_LENGTH:
        raise BadProject(
            f"it has {len(name)} characters. A project has at most {Project.MAX_LENGTH}"
        )
    if name.lower() == NO_PROJECT:
        raise BadProject(f"“{name}” means no project. Choose another name, or leave it empty")
    return name


def project_named(name: str) -> Project | None:
    """The project of a name from :func:`project_name`, made if it is new; ``None`` for no name."""
    if not name:
        return None
    found = Project.objects.filter(name__iexact=name).first()
    if found is not None:
        return found
    try:
        with transaction.atomic():
            return Project.objects.create(name=name)
    except IntegrityError:  # somebody else has made it meanwhile
        return Project.objects.get(name__iexact=name)


def in_project(name: str) -> dict[str, Any]:
    """Lookups of the rows in a project, whose name may be in any case, or :data:`NO_PROJECT`."""
    return {"project": None} if name.lower() == NO_PROJECT else {"project__name__iexact": name}


def projects_in_use() -> list[str]:
    """The names of the projects that any analysis belongs to, A to Z."""
    used = Analysis.objects.filter(project=OuterRef("pk"))
    return list(Project.objects.filter(Exists(used)).values_list("name", flat=True))
