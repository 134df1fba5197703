"""The version of an analysis: whether a client has it already, without reading its long JSON."""

from __future__ import annotations

import hashlib

from django.db.models import OuterRef, Subquery
from rest_framework.request import Request

from analyses import selectors
from analyses.api.asking import member_of
from analyses.api.serializers import AnalysisSerializer
from analyses.history.labels import TAGGINGS
from analyses.models import Trial

_CHANGING = (
    "owner__username", "status", "started_at", "finished_at", "node", "attempt", "answered_from",
    "adopted_at", "adopted_by__username", "failure_code", "failure_reason", "note__text",
)  # fmt: skip
"""What may change in the life of an analysis; its result and figures come with its status."""


def etag_of(request: Request, pk: int) -> str | None:
    """The ``ETag`` of an analysis as this request would have it; ``None`` if there is none."""
    latest = Trial.objects.filter(analysis=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    row = (
        selectors.visible_to(member_of(request))
        .filter(pk=pk)
        .annotate(latest_trial=Subquery(latest))
        .values_list(*_CHANGING, "latest_trial")
        .first()
    )
    if row is None:
        return None
    tags = TAGGINGS.filter(analysis=pk).order_by("tag__name").values_list("tag__name", flat=True)
    said = (AnalysisSerializer.Meta.fields, pk, row, list(tags), request.build_absolute_uri())
    return f'"{hashlib.sha256(repr(said).encode()).hexdigest()[:32]}"'
