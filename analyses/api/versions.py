"""The version of an analysis: whether a client has it already, without reading its long JSON.

An ``ETag`` has two parts, ``"LABELS.REST"``. The first is the version of tags and note alone: who
writes them by ``If-Match`` is hindered by who has written them too, and not by a trial that came
meanwhile or by having read other fields of the analysis.
"""

from __future__ import annotations

import hashlib

from django.db.models import OuterRef, Subquery
from django.utils.http import parse_etags
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from analyses import selectors
from analyses.api.asking import member_of
from analyses.api.serializers import AnalysisSerializer
from analyses.history.labels import TAGGINGS, Labels
from analyses.models import Trial

_CHANGING = (
    "owner__username", "status", "started_at", "finished_at", "node", "attempt", "answered_from",
    "adopted_at", "adopted_by__username", "failure_code", "failure_reason",
)  # fmt: skip
"""What may change in the life of an analysis; its result and figures come with its status."""


def etag_of(request: Request, pk: int) -> str | None:
    """The ``ETag`` of an analysis as this request would have it; ``None`` if there is none."""
    latest = Trial.objects.filter(analysis=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    row = (
        selectors.visible_to(member_of(request))
        .filter(pk=pk)
        .annotate(latest_trial=Subquery(latest))
        .values_list(*_CHANGING, "latest_trial", "note__text")
        .first()
    )
    if row is None:
        return None
    names = TAGGINGS.filter(analysis=pk).values_list("tag__name", flat=True)
    labels = Labels.of(names, row[-1])
    said = (AnalysisSerializer.Meta.fields, pk, row[:-1], request.build_absolute_uri())
    return f'"{labels.version}.{hashlib.sha256(repr(said).encode()).hexdigest()[:32]}"'


def labels_seen(request: Request) -> list[str] | None:
    """The versions of tags and note that ``If-Match`` names; ``None`` where any will do.

    A proxy that compresses answers makes their ``ETag`` a weak one (``W/``); it still tells
    versions apart.

    Raises:
        ValidationError: There is no ``ETag`` in it.
    """
    header = request.headers.get("If-Match")
    if header is None:
        return None
    etags = parse_etags(header)
    if not etags:
        raise ValidationError({"If-Match": ["give an ETag as it was sent, in its double quotes"]})
    if "*" in etags:
        return None
    return [etag.removeprefix("W/").strip('"').partition(".")[0] for etag in etags]
