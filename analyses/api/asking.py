"""Who asks, and what a wrong question is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from analyses.engine_events import storable
from engine.errors import InvalidInput


def member_of(request: Request) -> User:
    """The member who asks."""
    user = request.user
    assert isinstance(user, User)  # noqa: S101  # IsAuthenticated let it through
    return user


def fields_of(request: Request) -> Mapping[str, Any]:
    """The fields in the body.

    Raises:
        ValidationError: It holds something else than one object.
    """
    if not isinstance(request.data, Mapping):
        raise ValidationError({"non_field_errors": ["give one JSON object with the fields"]})
    return request.data


def refusal(error: InvalidInput) -> ValidationError:
    """The answer to a wrong question: a list of messages for each wrong field."""
    return ValidationError(
        {storable(name): [storable(text)] for name, text in error.fields.items()}
    )
