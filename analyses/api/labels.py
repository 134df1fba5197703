"""Tags and note of an analysis, and its ``ETag``.

The ``ETag`` has two parts, ``"LABELS.REST"``. The first is the version of tags and note alone, so
that a write with ``If-Match`` conflicts only with other writes of them, not with a new trial.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

from django.db.models import Exists, OuterRef, Subquery
from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from pydantic import AfterValidator, BaseModel, FailFast, Field
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from analyses import selectors
from analyses.api.serializers import AnalysisSerializer
from analyses.api.views import member_of
from analyses.jobs import plans
from analyses.lab.projects import project_name
from analyses.models import Analysis, Note, Project, Tag, Trial
from analyses.pages.history.labels import MAX_TAGS, TAGGINGS, Labels, note_from, tag_names

IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The `ETag` of the analysis that you read: 412 if its tags or note have changed "
    "since. Without it, the last write wins.",
)
LABELLED = OpenApiExample(
    "For a thesis", {"tags": ["thesis", "baseline"], "note": "Before the fix."}, request_only=True
)


class LabelsBody(BaseModel):
    """The tags, the note and the project of an analysis; what is left out stays as it is."""

    tags: Annotated[
        list[
            Annotated[
                str,
                Field(json_schema_extra={"maxLength": Tag.MAX_LENGTH, "pattern": r"^[^\x00,]*$"}),
            ]
        ],
        FailFast(),
        AfterValidator(tag_names),
        Field(
            description="All of its tags: stored in lower case, each once. An empty list removes "
            "them.",
            json_schema_extra={"maxItems": MAX_TAGS},
        ),
    ] = []
    note: Annotated[
        str | None,
        AfterValidator(lambda text: note_from(text or "")),
        Field(
            description="Empty or null removes it.",
            json_schema_extra={"maxLength": Note.MAX_LENGTH, "pattern": r"^[^\x00]*$"},
        ),
    ] = None
    project: Annotated[
        str | None,
        AfterValidator(lambda text: project_name(text or "")),
        Field(
            description="Name of its project, made if it is new. Empty or null takes it out of "
            "its project.",
            json_schema_extra={"maxLength": Project.MAX_LENGTH, "pattern": r"^[^\x00]*$"},
        ),
    ] = None


_CHANGING = (
    "owner__username", "status", "started_at", "finished_at", "node", "attempt", "answered_from",
    "adopted_at", "adopted_by__username", "failure_code", "failure_reason", "project__name",
    "decided__moves", "recommended_batch_size", "speedup", "usd_per_year",
)  # fmt: skip
"""Columns that change in an analysis's life; its result changes with its status or decision."""


def etag_of(request: Request, pk: int) -> str | None:
    """The ``ETag`` of this request's response; ``None`` if there is no such analysis."""
    latest = Trial.objects.filter(analysis=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    row = (
        selectors.visible_to(member_of(request))
        .filter(pk=pk)
        .annotate(latest_trial=Subquery(latest), plans=Exists(plans.unfinished()))
        .values_list("plans", *_CHANGING, "latest_trial", "note__text")
        .first()
    )
    if row is None:
        return None
    names = TAGGINGS.filter(analysis=pk).values_list("tag__name", flat=True)
    labels = Labels.of(names, row[-1])
    awaited = plans.awaited(Analysis.objects.defer("result", "recipe").get(pk=pk)) if row[0] else ""
    rest = (AnalysisSerializer.Meta.fields, pk, row[1:-1], awaited, request.build_absolute_uri())
    return f'"{labels.version}.{hashlib.sha256(repr(rest).encode()).hexdigest()[:32]}"'


def labels_seen(request: Request) -> list[str] | None:
    """The versions of tags and note in ``If-Match``; ``None`` accepts any.

    A proxy that compresses responses makes their ``ETag`` weak (``W/``), which still works here.

    Raises:
        ValidationError: It has no ``ETag``.
    """
    header = request.headers.get("If-Match")
    if header is None:
        return None
    etags = parse_etags(header)
    if not etags:
        raise ValidationError(
            {"If-Match": ["send an ETag as you received it, in its double quotes"]}
        )
    if "*" in etags:
        return None
    return [etag.removeprefix("W/").strip('"').partition(".")[0] for etag in etags]
