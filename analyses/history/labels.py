"""Tags and notes: reading and writing them. Every member of the lab may do both."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from analyses.engine_events import storable
from analyses.models import Analysis, Note, Tag

MOST_TAGS = 20
"""On one analysis; more say nothing and do not fit a page."""


TAGGINGS = Analysis.tags.through._default_manager
"""Which analysis has which tag."""


class BadLabel(Exception):
    """What was given cannot be tags, or a note; the message says what to change."""


class LabelsChanged(Exception):
    """Somebody has written other tags or another note since the author looked; nothing was done."""


@dataclass(frozen=True)
class Labels:
    """What members have put on an analysis.

    Attributes:
        tags: Their names, A to Z.
        note: Empty where there is none.
    """

    tags: tuple[str, ...]
    note: str

    @classmethod
    def of(cls, names: Iterable[str], note: str | None) -> Labels:
        """Those with these names in any order."""
        return cls(tuple(sorted(set(names))), _with_plain_ends(note or ""))

    @property
    def version(self) -> str:
        """Other than that of any other labels: tells whether somebody has changed them."""
        return hashlib.sha256(repr((self.tags, self.note)).encode()).hexdigest()[:16]


def tags_from(text: str) -> list[str]:
    """The names of tags in a text with commas; see :func:`tag_names`."""
    return tag_names(text.split(","))


def tag_names(given: Iterable[str]) -> list[str]:
    """The names of tags as they are kept: in small letters, each once, without empty ones.

    Raises:
        BadLabel: One is too long or has a comma, or they are too many.
    """
    names = list(dict.fromkeys(" ".join(name.lower().split()) for name in given))
    names = [name for name in names if name]
    for name in names:
        _check_storable(name)
        if "," in name:
            raise BadLabel("A tag has no comma: give two")
        if len(name) > Tag.LONGEST:
            raise BadLabel(
                f"“{name[:20]}…” is too long: a tag has at most {Tag.LONGEST} characters"
            )
    if len(names) > MOST_TAGS:
        raise BadLabel(f"These are {len(names)} tags; give at most {MOST_TAGS}")
    return names


def note_from(text: str) -> str:
    """A note as it is kept.

    Raises:
        BadLabel: It is too long.
    """
    note = _with_plain_ends(text).strip()
    _check_storable(note)
    if len(note) > Note.LONGEST:
        raise BadLabel(f"It has {len(note):,} characters; a note has at most {Note.LONGEST:,}")
    return note


def _with_plain_ends(text: str) -> str:
    """The text with its lines ended as scripts do it; browsers send a carriage return too."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check_storable(text: str) -> None:
    if storable(text) != text:
        raise BadLabel("There is a NUL or half a surrogate pair in it; remove it")


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


def labels_of(analysis: Analysis) -> Labels:
    """Tags and note of an analysis as it was read."""
    return Labels.of((tag.name for tag in analysis.tags.all()), note_of(analysis))


def write_labels(
    analysis: Analysis,
    names: Iterable[str] | None,
    note: str | None,
    author: User,
    seen: Collection[str] | None = None,
) -> None:
    """Let an analysis have these tags and this note, and no others.

    Args:
        analysis: Read at any time before: what it has now is looked up.
        names: Of tags; with ``None`` they stay.
        note: Empty for none; with ``None`` it stays.
        author: Who writes.
        seen: Versions that the author may have seen; ``None`` writes over whatever there is.

    Raises:
        LabelsChanged: What there is now is none of them, nor what is to be written.
    """
    with transaction.atomic():
        _locked([analysis])  # so that nobody writes between the look and the writing
        now = _labels_now(analysis)
        wanted = Labels.of(now.tags if names is None else names, now.note if note is None else note)
        if seen is not None and wanted != now and now.version not in seen:
            raise LabelsChanged
        if wanted.tags != now.tags:
            analysis.tags.set(_tags(wanted.tags))
        if not wanted.note:
            Note.objects.filter(analysis=analysis).delete()
        elif wanted.note != now.note:
            written = {"text": wanted.note, "author": author}
            Note.objects.update_or_create(analysis=analysis, defaults=written)


def _locked(analyses: Sequence[Analysis]) -> list[int]:
    """Keep others from writing these analyses' labels until the transaction ends.

    Returns:
        The ids of those that nobody has deleted meanwhile.
    """
    rows = Analysis.objects.filter(pk__in=[analysis.pk for analysis in analyses]).order_by("pk")
    return list(rows.select_for_update(no_key=True).values_list("pk", flat=True))


def _labels_now(analysis: Analysis) -> Labels:
    names = TAGGINGS.filter(analysis=analysis).values_list("tag__name", flat=True)
    note = Note.objects.filter(analysis=analysis).values_list("text", flat=True).first()
    return Labels.of(names, note)


def add_tags(analyses: Sequence[Analysis], names: Iterable[str]) -> None:
    """Add tags to each of the analyses."""
    through = Analysis.tags.through
    with transaction.atomic():
        pairs = product(_locked(analyses), _tags(names))
        TAGGINGS.bulk_create(
            (through(analysis_id=pk, tag=tag) for pk, tag in pairs), ignore_conflicts=True
        )


def remove_tags(analyses: Sequence[Analysis], names: Iterable[str]) -> None:
    """Take tags off each of the analyses."""
    with transaction.atomic():
        TAGGINGS.filter(analysis__in=_locked(analyses), tag__name__in=list(names)).delete()


def _tags(names: Iterable[str]) -> list[Tag]:
    names = list(names)
    Tag.objects.bulk_create((Tag(name=name) for name in names), ignore_conflicts=True)
    return list(Tag.objects.filter(name__in=names))
