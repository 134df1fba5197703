"""``Idempotency-Key``: however often a request is sent, it makes one analysis."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta

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
    {"type": "string", "minLength": 1, "maxLength": IdempotencyKey.LONGEST},
    OpenApiParameter.HEADER,
    description="A word of yours, such as a UUID, for this request: sent again within 24 hours it "
    "gives the analysis that it made the first time, with `Idempotency-Replayed: true`.",
)


class KeyUsed(APIException):
    """The key stands for another request."""

    status_code = HTTP_422_UNPROCESSABLE_ENTITY
    default_detail = (
        "This Idempotency-Key was used with another body. Take a new key for a new request."
    )


class _UsedBefore(Exception):
    """The key is in use; raised to leave the transaction."""


def key_of(request: Request) -> str | None:
    """The request's key, if it has one.

    Raises:
        ValidationError: It is no key.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not (0 < len(key) <= IdempotencyKey.LONGEST and key.isascii() and key.isprintable()):
        raise ValidationError(
            {HEADER: [f"give 1 to {IdempotencyKey.LONGEST} printable ASCII characters"]}
        )
    return key


def submit_once(member: User, key: str, fields: Mapping[str, object]) -> tuple[Analysis, bool]:
    """Submit an analysis unless this key of the member's has made one in the last day.

    Two at once make one: the key is unique, so the second waits for the first one's transaction to
    end. A request that is refused leaves no key behind, and may be put right and sent again.

    Returns:
        The analysis, and whether it is new.

    Raises:
        KeyUsed: The key was used with other fields.
        InvalidInput: As :func:`analyses.services.submit`.
    """
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    IdempotencyKey.objects.filter(used_at__lt=Now() - KEPT).delete()
    try:
        with transaction.atomic():
            row = _take(member, key, digest)
            row.analysis = services.submit(member, fields)
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
