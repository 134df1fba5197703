"""Tags and note of an analysis as a script writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema_field
from rest_framework import serializers

from analyses.history.labels import MOST_TAGS, BadLabel, note_from, tag_names
from analyses.models import Note, Tag
from engine.errors import InvalidInput
from engine.parsing import unknown_fields

IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The `ETag` of an analysis as it was read: 412, and nothing is done, where tags or "
    "note have been changed since. Without it the last writer wins.",
)
LABELLED = OpenApiExample(
    "For a thesis", {"tags": ["thesis", "baseline"], "note": "Before the fix."}, request_only=True
)


@extend_schema_field({"type": "string", "maxLength": Tag.LONGEST, "pattern": r"^[^\x00,]*$"})
class TagField(serializers.CharField):
    """The name of a tag."""


@extend_schema_field(
    {"type": "string", "maxLength": Note.LONGEST, "pattern": r"^[^\x00]*$", "nullable": True}
)
class NoteField(serializers.CharField):
    """A text, or none."""


class LabelsSerializer(serializers.Serializer[Any]):
    """What members put on an analysis; what is left out stays."""

    tags = serializers.ListField(
        child=TagField(allow_blank=True),
        max_length=MOST_TAGS,
        help_text="All it is to have: kept in small letters, each once. An empty list takes them "
        "off.",
    )
    note = NoteField(allow_blank=True, help_text="Empty or null removes it.")


def labels_in(fields: Mapping[str, Any]) -> tuple[list[str] | None, str | None]:
    """The tags and the note that a body gives; ``None`` for what it leaves as it is.

    Raises:
        InvalidInput: With a message for each wrong field, and for each that there is not.
    """
    wrong = unknown_fields(fields, ("tags", "note"))
    names, note = None, None
    if "tags" in fields:
        try:
            names = tag_names(_texts(fields["tags"]))
        except BadLabel as error:
            wrong["tags"] = str(error)
    if "note" in fields:
        try:
            note = note_from(_text("" if fields["note"] is None else fields["note"]))
        except BadLabel as error:
            wrong["note"] = str(error)
    if wrong:
        raise InvalidInput(wrong)
    return names, note


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadLabel('give a list of names, such as ["thesis", "baseline"]')
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadLabel("give a text")
    return value
