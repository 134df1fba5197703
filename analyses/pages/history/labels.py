"""Tags and notes of an analysis, which every member of the lab may read and write."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from django import forms
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from analyses.bodies import storable
from analyses.lab.projects import BadProject, project_name
from analyses.models import Analysis, Note, Tag
from analyses.pages.access import MemberRequest, find_analysis
from memorymark_site.accounts.roles import Role, needs

MAX_TAGS = 20
"""Tags on one analysis; more do not fit a page."""

TAGGINGS = Analysis.tags.through._default_manager
"""The pairs of analysis and tag."""


class BadLabel(ValueError):
    """A text cannot be tags, or a note; the message says what to change."""


class LabelsChanged(Exception):
    """Someone else changed the tags or the note since the author read them; nothing was written."""


@dataclass(frozen=True)
class Labels:
    """The tags of an analysis, A to Z, and its note; empty where there are none."""

    tags: tuple[str, ...]
    note: str

    @classmethod
    def of(cls, names: Iterable[str], note: str | None) -> Labels:
        """Labels with these names, in any order."""
        return cls(tuple(sorted(set(names))), _with_plain_ends(note or ""))

    @property
    def version(self) -> str:
        """A hash that changes with the labels, to detect concurrent edits."""
        return hashlib.sha256(repr((self.tags, self.note)).encode()).hexdigest()[:16]


def tags_from(text: str) -> list[str]:
    """The tag names in a comma-separated text; see :func:`tag_names`."""
    return tag_names(text.split(","))


def tag_names(given: Iterable[str]) -> list[str]:
    """Tag names as they are stored: lower case, each once, without empty ones.

    Raises:
        BadLabel: One is too long or contains a comma, or there are too many.
    """
    names = list(dict.fromkeys(" ".join(name.lower().split()) for name in given))
    names = [name for name in names if name]
    for name in names:
        _check_storable(name)
        if "," in name:
            raise BadLabel("A tag cannot contain a comma")
        if len(name) > Tag.MAX_LENGTH:
            raise BadLabel(
                f"“{name[:20]}…” is too long. A tag has at most {Tag.MAX_LENGTH} characters"
            )
    if len(names) > MAX_TAGS:
        raise BadLabel(f"{len(names)} tags are too many. The limit is {MAX_TAGS}")
    return names


def note_from(text: str) -> str:
    """A note as it is stored.

    Raises:
        BadLabel: It is too long.
    """
    note = _with_plain_ends(text).strip()
    _check_storable(note)
    if len(note) > Note.MAX_LENGTH:
        raise BadLabel(f"It has {len(note):,} characters. A note has at most {Note.MAX_LENGTH:,}")
    return note


def _with_plain_ends(text: str) -> str:
    """The text with Unix line ends; browsers send a carriage return too."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check_storable(text: str) -> None:
    if storable(text) != text:
        raise BadLabel("It contains a NUL or half a surrogate pair. Remove it")


def tags_in_use() -> list[str]:
    """The tags that any analysis has, A to Z."""
    used = TAGGINGS.filter(tag=OuterRef("pk"))
    return list(Tag.objects.filter(Exists(used)).values_list("name", flat=True))


def with_labels(analyses: QuerySet[Analysis]) -> QuerySet[Analysis]:
    """The same analyses with their tags and notes prefetched."""
    return analyses.select_related("owner", "note").prefetch_related("tags")


def note_of(analysis: Analysis) -> str | None:
    note: Note | None = getattr(analysis, "note", None)
    return note.text if note else None


def labels_of(analysis: Analysis) -> Labels:
    return Labels.of((tag.name for tag in analysis.tags.all()), note_of(analysis))


def write_labels(
    analysis: Analysis,
    names: Iterable[str] | None,
    note: str | None,
    author: User,
    seen: Collection[str] | None = None,
) -> None:
    """Set the tags and the note of an analysis.

    Args:
        analysis: May have been read at any time before; its labels are read again here.
        names: Tag names; ``None`` keeps the tags.
        note: Empty removes it; ``None`` keeps it.
        author: The member who writes.
        seen: Versions that the author may have seen; ``None`` overwrites whatever there is.

    Raises:
        LabelsChanged: The current labels are none of those, nor the ones to be written.
        Http404: The analysis has been deleted since it was read.
    """
    with transaction.atomic():
        if not _locked([analysis]):  # the lock keeps other writes out from the read to the write
            raise Http404(f"There is no analysis {analysis.pk}.")
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
    """Lock the labels of these analyses until the transaction ends.

    Returns the ids of those that still exist.
    """
    rows = Analysis.objects.filter(pk__in=[analysis.pk for analysis in analyses]).order_by("pk")
    return list(rows.select_for_update(no_key=True).values_list("pk", flat=True))


def _labels_now(analysis: Analysis | int) -> Labels:
    names = TAGGINGS.filter(analysis=analysis).values_list("tag__name", flat=True)
    note = Note.objects.filter(analysis=analysis).values_list("text", flat=True).first()
    return Labels.of(names, note)


def add_tags(analyses: Sequence[Analysis], names: Iterable[str]) -> None:
    through = Analysis.tags.through
    with transaction.atomic():
        pairs = product(_locked(analyses), _tags(names))
        TAGGINGS.bulk_create(
            (through(analysis_id=pk, tag=tag) for pk, tag in pairs), ignore_conflicts=True
        )


def remove_tags(analyses: Sequence[Analysis], names: Iterable[str]) -> None:
    with transaction.atomic():
        TAGGINGS.filter(analysis__in=_locked(analyses), tag__name__in=list(names)).delete()


def _tags(names: Iterable[str]) -> list[Tag]:
    names = list(names)
    Tag.objects.bulk_create((Tag(name=name) for name in names), ignore_conflicts=True)
    return list(Tag.objects.filter(name__in=names))


class TagsField(forms.CharField):
    """Comma-separated tags; its value is the list of their names."""

    def clean(self, value: object) -> list[str]:
        try:
            return tags_from(super().clean(value))
        except BadLabel as error:
            raise forms.ValidationError(f"{error}.") from error


class ProjectField(forms.CharField):
    """The name of a project; empty for none."""

    def __init__(self, help_text: str = "") -> None:
        super().__init__(
            label="Project",
            required=False,
            help_text=help_text,
            widget=forms.TextInput(attrs={"autocomplete": "off", "list": "project-names"}),
        )

    def clean(self, value: object) -> str:
        try:
            return project_name(super().clean(value))
        except BadProject as error:
            text = str(error)
            raise forms.ValidationError(f"{text[:1].upper()}{text[1:]}.") from error


class NoteField(forms.CharField):
    """A text of several lines."""

    widget = forms.Textarea(attrs={"rows": 3, "maxlength": Note.MAX_LENGTH})

    def clean(self, value: object) -> str:
        try:
            return note_from(super().clean(value))
        except BadLabel as error:
            raise forms.ValidationError(f"{error}.") from error


class LabelsForm(forms.Form):
    """Tags and note of one analysis; ``seen`` is their version when the form was opened."""

    tags = TagsField(
        required=False,
        help_text="Comma-separated, e.g. baseline, thesis. Your whole lab sees them.",
    )
    note = NoteField(required=False)
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    @classmethod
    def of(cls, labels: Labels) -> LabelsForm:
        tags = ", ".join(labels.tags)
        return cls(initial={"tags": tags, "note": labels.note, "seen": labels.version})


class TagsForm(forms.Form):
    """The tags of one analysis in its row; ``seen`` is as in :class:`LabelsForm`."""

    tags = TagsField(required=False)
    seen = forms.CharField(required=False)


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def tags(request: MemberRequest, pk: int) -> HttpResponse:
    """The tags in a row of the history: for htmx as a form or, once saved, as links.

    Without JavaScript, it leads to the page of tags and note.
    """
    if not request.htmx:
        return redirect("analyses:labels", pk=pk)
    analysis = find_analysis(request, pk)
    if request.method != "POST":
        return _tags_cell(request, analysis, form=None if "shown" in request.GET else _stored(pk))
    form = TagsForm(request.POST)
    if not form.is_valid():
        return _tags_cell(request, analysis, form)
    try:
        seen = [form.cleaned_data["seen"]]
        write_labels(analysis, form.cleaned_data["tags"], None, request.user, seen)
    except LabelsChanged:
        now = _labels_now(analysis)
        form = TagsForm({"tags": form.data.get("tags", ""), "seen": now.version})
        stored = ", ".join(now.tags) or "none"
        form.add_error("tags", f"Someone changed tags or note meanwhile. Tags now: {stored}.")
        return _tags_cell(request, analysis, form)
    return _tags_cell(request, analysis)


def _stored(pk: int) -> TagsForm:
    labels = _labels_now(pk)
    return TagsForm(initial={"tags": ", ".join(labels.tags), "seen": labels.version})


def _tags_cell(
    request: MemberRequest, analysis: Analysis, form: TagsForm | None = None
) -> HttpResponse:
    context = {"analysis": analysis, "tags_form": form, "is_back": True}
    return render(request, "history/_tags.html", context)


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def labels(request: MemberRequest, pk: int) -> HttpResponse:
    """The page to edit the tags and the note of an analysis."""
    analysis = find_analysis(request, pk)
    is_sent = request.method == "POST"
    form = LabelsForm(request.POST) if is_sent else LabelsForm.of(labels_of(analysis))
    if not form.is_valid():  # which a form that is not bound never is
        return render(request, "history/labels.html", {"analysis": analysis, "form": form})
    given = form.cleaned_data
    try:
        write_labels(analysis, given["tags"], given["note"], request.user, seen=[given["seen"]])
    except LabelsChanged:
        return _labels_changed(request, pk, form)
    return redirect("analyses:detail", pk=pk)


def _labels_changed(request: MemberRequest, pk: int, sent: LabelsForm) -> HttpResponse:
    """The page with both versions: the stored one, and the reader's to save or discard."""
    analysis = find_analysis(request, pk)
    typed = {"tags": sent.data.get("tags", ""), "note": sent.data.get("note", "")}
    form = LabelsForm(initial=typed | {"seen": labels_of(analysis).version})
    context = {"analysis": analysis, "form": form, "is_changed": True}
    return render(request, "history/labels.html", context, status=409)
