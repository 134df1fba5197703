"""The document of a pushed analysis, read strictly: what it says wrong is told field by field."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from analyses.engine_events import storable
from analyses.importing.checks import contradictions, measured_gpu_of
from analyses.stored_result import UNREADABLE, read_result
from engine.errors import InvalidInput
from engine.parsing import plain_text, shown, unknown_fields
from engine.request import AnalysisRequest
from engine.result import AnalysisResult

SCHEMA_VERSION = 1
LONGEST_NAME = 200
MOST_VERSIONS = 32
LONGEST_TEXT = 20_000
LONGEST_LIST = 10_000
DEEPEST = 50
LARGEST_NUMBER = 2**62
"""No figure comes near; a database refuses what is twice as large."""

CLOCK_TOLERANCE = timedelta(days=1)
"""A host whose clock is wrong by more is told so."""

_FIELDS = {
    "schema_version", "id", "request", "result", "started_at", "finished_at", "origin",
    "environment",
}  # fmt: skip


@dataclass(frozen=True)
class Document:
    """An analysis that ran elsewhere, checked.

    Attributes:
        id: Made by who pushes it.
        digest: Of everything in it, to tell it from another one with its id.
        fields: The flat fields of the request as they were given; assumptions that are not among
            them are the lab's.
        measured_gpu: The kind of GPU it was measured on; empty for a prediction.
        host: The machine it ran on, as that calls itself.
        ran: What ran there.
        environment: Versions there, by name.
    """

    id: UUID
    digest: str
    fields: Mapping[str, object]
    request: AnalysisRequest
    measured_gpu: str
    result: AnalysisResult
    started_at: datetime
    finished_at: datetime
    host: str
    ran: str
    environment: Mapping[str, str]


def read_document(given: Mapping[str, Any]) -> Document:
    """Read what a client has sent.

    Raises:
        InvalidInput: With a message for each wrong, unknown or missing field.
    """
    _check_form(given)
    wrong: dict[str, str] = {}
    document_id = _uuid(given["id"], wrong)
    request = _request(given["request"], wrong)
    result = _result(given["result"], wrong)
    started_at = _moment("started_at", given["started_at"], wrong)
    finished_at = _moment("finished_at", given["finished_at"], wrong)
    host, ran = _origin(given["origin"], wrong)
    _check_environment(given["environment"], wrong)
    if request and result:
        wrong |= contradictions(request, result)
    if started_at and finished_at and not started_at <= finished_at:
        wrong["finished_at"] = "it is before started_at"
    if wrong or not (document_id and request and result and started_at and finished_at):
        raise InvalidInput(wrong)
    text = json.dumps(given, sort_keys=True)
    return Document(
        id=document_id,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        fields=given["request"],
        request=request,
        measured_gpu=measured_gpu_of(request, result),
        result=result,
        started_at=started_at,
        finished_at=finished_at,
        host=host,
        ran=ran,
        environment=given["environment"],
    )


def _check_form(given: Mapping[str, Any]) -> None:
    """Refuse what is of another version or shape, and what no database stores."""
    if "schema_version" in given and given["schema_version"] != SCHEMA_VERSION:
        raise InvalidInput(
            {
                "schema_version": f"{shown(given['schema_version'])} is not known here, "
                f"{SCHEMA_VERSION} is; bring client and site to the same version"
            }
        )
    wrong = unknown_fields(given, _FIELDS)
    wrong |= dict.fromkeys(_FIELDS - given.keys(), "is missing")
    objects = ("request", "result", "origin", "environment")
    for name in objects:
        if name in given and not isinstance(given[name], dict):
            wrong[name] = "give a JSON object"
    if wrong:
        raise InvalidInput(wrong)
    for name, value in given.items():
        if problem := _unstorable(value, negatives=name != "result"):
            wrong[name] = problem
    if wrong:
        raise InvalidInput(wrong)


def _unstorable(value: object, *, negatives: bool) -> str:
    """What in a value cannot be kept; empty if all of it can."""
    left = [(value, 0)]
    while left:
        item, depth = left.pop()
        parts: list[object] = []
        if isinstance(item, dict):
            parts = [*item.keys(), *item.values()]
        elif isinstance(item, list):
            parts = item
        elif problem := _problem_of(item, negatives=negatives):
            return problem
        if len(parts) > LONGEST_LIST:
            return f"it has a list of more than {LONGEST_LIST:,}"
        if depth > DEEPEST:
            return f"it is nested more than {DEEPEST} deep"
        left += [(part, depth + 1) for part in parts]
    return ""


def _problem_of(item: object, *, negatives: bool) -> str:
    """What is wrong with one text or number."""
    if isinstance(item, str):
        if len(item) > LONGEST_TEXT:
            return f"it has a text of more than {LONGEST_TEXT:,} characters"
        if storable(item) != item:
            return "it has a NUL or half a surrogate pair in a text; remove it"
    elif isinstance(item, int | float):
        if not (math.isfinite(item) and abs(item) < LARGEST_NUMBER):
            return f"{shown(item)} is too large a number"
        if item < 0 and not negatives:
            return f"{shown(item)} is below zero, as no figure of a result is"
    return ""


def _uuid(value: object, wrong: dict[str, str]) -> UUID | None:
    try:
        return UUID(value if isinstance(value, str) else "")
    except ValueError:
        wrong["id"] = f"{shown(value)} is no UUID; make one for each push"
        return None


def _request(given: Mapping[str, object], wrong: dict[str, str]) -> AnalysisRequest | None:
    try:
        return AnalysisRequest.parse(given)
    except InvalidInput as error:
        wrong |= {f"request.{name}": message for name, message in error.fields.items()}
        return None


def _result(given: Mapping[str, Any], wrong: dict[str, str]) -> AnalysisResult | None:
    try:
        return read_result(given)
    except UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}"
        wrong["result"] = (
            f"it cannot be read ({reason:.300}); client and site may differ in version"
        )
        return None


def _moment(name: str, value: object, wrong: dict[str, str]) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
        if moment.tzinfo is None:
            raise ValueError("a time of nowhere")
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        wrong[name] = f"{shown(value)} is no time with a zone; write 2026-01-31T12:00:00+00:00"
        return None
    if moment > timezone.now() + CLOCK_TOLERANCE:
        wrong[name] = "it is in the future; set the clock of that machine"
    return moment


def _origin(given: Mapping[str, object], wrong: dict[str, str]) -> tuple[str, str]:
    for name, message in unknown_fields(given, ("host", "ran")).items():
        wrong[f"origin.{name}"] = message
    found = []
    for name in ("host", "ran"):
        value = given.get(name)
        plain_text(f"origin.{name}", value, wrong)
        if isinstance(value, str) and len(value) > LONGEST_NAME:
            wrong[f"origin.{name}"] = f"give at most {LONGEST_NAME} characters"
        found.append(str(value))
    return found[0], found[1]


def _check_environment(given: Mapping[str, object], wrong: dict[str, str]) -> None:
    texts = [*given.keys(), *given.values()]
    if len(given) > MOST_VERSIONS or not all(
        isinstance(text, str) and len(text) <= LONGEST_NAME for text in texts
    ):
        wrong["environment"] = f"give at most {MOST_VERSIONS} names with a version each, as text"
