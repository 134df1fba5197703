"""Tags and notes: reading and writing them. Every member of the lab may do both."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from analyses.models import Analysis, Note, Tag

MOST_TAGS = 20
"""On one analysis; more say nothing and do not fit a page."""


TAGGINGS = Analysis.tags.through._default_manager
"""Which analysis has which tag."""


class BadTags(Exception):
    """What was typed cannot be tags; the message says what to change."""


def tags_from(text: str) -> list[str]:
    """The names of tags in a text with commas, in small letters, each once.

    Raises:
        BadTags: One is too long, or they are too many.
    """
    names = list(dict.fromkeys(" ".join(part.lower().split()) for part in text.split(",")))
    names = [name for name in names if name]
    for name in names:
        if len(name) > Tag.LONGEST:
            raise BadTags(f"“{name[:20]}…” is too long: a tag has at most {Tag.LONGEST} characters")
    if len(names) > MOST_TAGS:
        raise BadTags(f"These are {len(names)} tags; give at most {MOST_TAGS}")
    return names


def tags_in_use() -> list[str]:
    """The names of the lab's tags that some analysis has, A to Z."""
    used = TAGGINGS.filter(tag=OuterRef("pk"))
    return list(Tag.objects.filter(Exists(used)).values_list("name", flat=True))


def with_labels(analyses: QuerySet[Analysis]) -> QuerySet[Analysis]:
    """The same analyses with their tags and notes at hand."""
    return analyses.select_related("owner", "note").prefetch_related("tags")


def note_of(analysis: Analysis) -> str | None:
    """What members have written about an analysis; ``None`` where nobody has."""
    note: Note | None = getattr(analysis, "note", None)
    return note.text if note else None


def labels_of(analysis: Analysis) -> dict[str, str]:
    """Tags and note as the text of a form's fields."""
    tags = ", ".join(tag.name for tag in analysis.tags.all())
    return {"tags": tags, "note": note_of(analysis) or ""}


def write_labels(analysis: Analysis, names: Iterable[str], note: str, author: User) -> None:
    """Let an analysis have these tags and this note, and no others."""
    with transaction.atomic():
        analysis.tags.set(_tags(names))
        if not note:
            Note.objects.filter(analysis=analysis).delete()
        elif note != note_of(analysis):
            written = {"text": note, "author": author}
            Note.objects.update_or_create(analysis=analysis, defaults=written)


def add_tags(analyses: Iterable[Analysis], names: Iterable[str]) -> None:
    """Add tags to each of the analyses."""
    pairs = [(analysis, tag) for tag in _tags(names) for analysis in analyses]
    through = Analysis.tags.through
    TAGGINGS.bulk_create(
        (through(analysis=analysis, tag=tag) for analysis, tag in pairs), ignore_conflicts=True
    )


def remove_tags(analyses: Iterable[Analysis], names: Iterable[str]) -> None:
    """Take tags off each of the analyses."""
    TAGGINGS.filter(analysis__in=list(analyses), tag__name__in=list(names)).delete()


def _tags(names: Iterable[str]) -> list[Tag]:
    names = list(names)
    Tag.objects.bulk_create((Tag(name=name) for name in names), ignore_conflicts=True)
    return list(Tag.objects.filter(name__in=names))
