"""``Idempotency-Key``: a request that is sent again creates no second analysis."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request
from rest_framework.status import HTTP_422_UNPROCESSABLE_ENTITY

from analyses import services
from analyses.models import Analysis, IdempotencyKey

HEADER = "Idempotency-Key"
KEPT = timedelta(hours=24)
KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": IdempotencyKey.MAX_LENGTH},
    OpenApiParameter.HEADER,
    description="Your own key for this request, such as a UUID. Sent again within 24 hours, "
    "it returns the analysis that it created before, with `Idempotency-Replayed: true`.",
)


class KeyUsed(APIException):
    """The key was used with another body."""

    status_code = HTTP_422_UNPROCESSABLE_ENTITY
    default_detail = (
        "This Idempotency-Key was used with another body. Create a new key for each request."
    )


class _UsedBefore(Exception):
    """Raised to leave the transaction if the key is in use."""


def key_of(request: Request) -> str | None:
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not (0 < len(key) <= IdempotencyKey.MAX_LENGTH and key.isascii() and key.isprintable()):
        raise ValidationError(
            {HEADER: [f"send 1 to {IdempotencyKey.MAX_LENGTH} printable ASCII characters"]}
        )
    return key


def is_replay(request: Request) -> bool:
    """Whether this key of the member's has created an analysis in the last day."""
    key = request.headers.get(HEADER)
    if not key or len(key) > IdempotencyKey.MAX_LENGTH or not key.isascii():
        return False
    used = IdempotencyKey.objects.filter(member=request.user.pk, key=key, analysis__isnull=False)
    return used.filter(used_at__gte=Now() - KEPT).exists()


def submit_once(
    member: User,
    key: str,
    fields: Mapping[str, object],
    recipe: Mapping[str, Any] | None = None,
    project: str = "",
) -> tuple[Analysis, bool]:
    """Submit an analysis unless this key of the member's has created one in the last day.

    Of two requests at once, one creates it: the key is unique, so the second waits for the first
    one's transaction. A refused request stores no key, so it can be corrected and sent again.

    Returns:
        The analysis, and whether it is new.

    Raises:
        KeyUsed: The key was used with other fields.
        InvalidInput: As :func:`analyses.services.submit`.
    """
    sent = {**fields, "project": project} if project else fields
    digest = hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
    IdempotencyKey.objects.filter(used_at__lt=Now() - KEPT).delete()
    try:
        with transaction.atomic():
            row = _take(member, key, digest)
            row.analysis = services.submit(member, fields, recipe=recipe, project=project)
            row.save(update_fields=["analysis"])
            return row.analysis, True
    except _UsedBefore:
        used = IdempotencyKey.objects.select_related("analysis").get(member=member, key=key)
        if used.digest != digest or used.analysis is None:
            raise KeyUsed from None
        return used.analysis, False


def _take(member: User, key: str, digest: str) -> IdempotencyKey:
    try:
        with transaction.atomic():
            return IdempotencyKey.objects.create(member=member, key=key, digest=digest)
    except IntegrityError as error:
        raise _UsedBefore from error
