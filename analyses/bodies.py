"""Field types for the pydantic models of the JSON bodies that clients send."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from django.utils import timezone
from pydantic import AfterValidator, BeforeValidator, Field

from engine.core.parsing import shown

MAX_NAME_LENGTH = 200
MAX_TEXT_LENGTH = 20_000
MAX_LIST_LENGTH = 10_000
MAX_DEPTH = 50
MAX_NUMBER = 2**62
"""Far above any real value; a database refuses 2**63."""

CLOCK_TOLERANCE = timedelta(days=1)
"""Maximum lead of a client's clock."""


class IdTaken(Exception):
    """This id belongs to another document; the message says what to do."""


@dataclass(frozen=True)
class Stored:
    """Metadata of a field that holds the JSON of one of some data classes, for the API's schema."""

    kinds: tuple[type, ...]


def _uuid(value: object) -> UUID:
    try:
        return UUID(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(f"{shown(value)} is not a UUID; create one for each report") from None


def _moment(value: object) -> datetime:
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{shown(value)} is not a time with a zone; write 2026-01-31T12:00:00+00:00"
        ) from None
    if moment > timezone.now() + CLOCK_TOLERANCE:
        raise ValueError("it is in the future; set the clock of that machine")
    return moment


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{shown(text)} is not printable")
    return text


def storable(text: str) -> str:
    """The text without what a database refuses: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    """The value, if a database can store all of it."""
    left: list[tuple[object, int]] = [(value, 0)]
    while left:
        item, depth = left.pop()
        parts: list[object] = []
        if isinstance(item, dict):
            parts = [*item.keys(), *item.values()]
        elif isinstance(item, list):
            parts = item
        else:
            _check_storable(item)
        if len(parts) > MAX_LIST_LENGTH:
            raise ValueError(f"it has a list of more than {MAX_LIST_LENGTH:,}")
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        left += [(part, depth + 1) for part in parts]
    return value


def _check_storable(item: object) -> None:
    if isinstance(item, str):
        if len(item) > MAX_TEXT_LENGTH:
            raise ValueError(f"it has a text of more than {MAX_TEXT_LENGTH:,} characters")
        if storable(item) != item:
            raise ValueError("it has a NUL or half a surrogate pair in a text; remove it")
    elif isinstance(item, int | float) and not abs(item) < MAX_NUMBER:  # nor is NaN
        raise ValueError(f"{shown(item)} is too large a number")


Id = Annotated[
    UUID,
    BeforeValidator(_uuid),
    Field(description="Your own, the same in each try: the lab stores it once."),
]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH), AfterValidator(_printable)]
STORABLE = AfterValidator(_storable)
JsonObject = Annotated[dict[str, Any], STORABLE]
