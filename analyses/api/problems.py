"""Every error of the API as problem details (RFC 9457), whatever raised it and wherever."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import db
from django.core.exceptions import RequestDataTooBig
from django.core.signals import got_request_exception
from django.http import HttpRequest, JsonResponse
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
KINDS_ADDRESS = "/api/docs/problems/"
RETRY_SECONDS = 5
"""When to ask again where the database is away."""


@dataclass(frozen=True)
class Kind:
    """One kind of problem, the same for all that it happens to.

    Attributes:
        name: Stands at the end of a problem's ``type``.
        title: What has happened, without the details.
        meaning: What to do about it.
    """

    status: int
    name: str
    title: str
    meaning: str

    @property
    def address(self) -> str:
        """The ``type`` of a problem: where the site describes it."""
        return f"{KINDS_ADDRESS}#{self.name}"


KINDS = {
    kind.status: kind
    for kind in (
        Kind(400, "invalid", "The request is wrong",
             "Nothing was done. errors says for each wrong field what to do."),
        Kind(401, "not-signed-in", "Sign in first",
             "Send the header Authorization: Token mm_… with a token that is valid."),
        Kind(403, "not-allowed", "You may not do that",
             "It takes an admin, or whoever owns it; of a token, one to write; with a session it "
             "takes the CSRF token."),
        Kind(404, "not-found", "There is no such thing",
             "It has been deleted, you may not see it, or the address is mistyped."),
        Kind(405, "method-not-allowed", "That cannot be done here",
             "The header Allow has the methods of this address."),
        Kind(406, "not-acceptable", "No such format",
             "The API answers JSON: accept application/json, or leave Accept out."),
        Kind(409, "conflict", "Its state forbids that",
             "Read it again: it has changed, or it is not so far yet. Nothing was done."),
        Kind(412, "changed", "Somebody has changed it since",
             "Read it again, look at what is there now, and send your change with its new ETag. "
             "Nothing was done."),
        Kind(413, "too-large", "The request is too large",
             "A config has at most 1 MiB; the rest is small."),
        Kind(415, "unsupported-media-type", "No such format is read",
             "Send JSON, and say so: Content-Type: application/json."),
        Kind(422, "key-used", "This Idempotency-Key stands for another request",
             "Take a new key for a new request; a key goes only with the body it was first used "
             "with."),
        Kind(429, "too-many", "Too many requests",
             "Wait for the seconds of Retry-After. To wait for an answer, use ?wait= and do not "
             "poll."),
        Kind(500, "failure", "Something went wrong here",
             "It is a fault of the site; its log says more."),
        Kind(503, "away", "The database does not answer",
             "Try again after the seconds of Retry-After."),
    )
}  # fmt: skip
"""By status code: a status says it all but for the words."""


class Conflict(exceptions.APIException):
    """What was asked for cannot be done in the state that things are in."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"


class Changed(exceptions.APIException):
    """What is there now is not what ``If-Match`` says."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_code = "changed"


class TooLarge(exceptions.APIException):
    """The body is larger than ``DATA_UPLOAD_MAX_MEMORY_SIZE``."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "The request is too large; a config has at most 1 MiB, the rest is small."
    default_code = "too_large"


class Away(exceptions.APIException):
    """The database does not answer."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = "The database does not answer. Nothing was done; try again."
    wait = RETRY_SECONDS


def handle_exception(error: Exception, context: dict[str, Any]) -> Response:
    """What the API answers to an exception raised in one of its views."""
    request = context["request"]
    if isinstance(error, RequestDataTooBig):
        error = TooLarge()
    elif isinstance(error, db.OperationalError | db.InterfaceError):
        logger.error("the database does not answer", exc_info=error)
        error = Away()
    answer = exception_handler(error, context)
    if answer is None:
        # The exception stops here, so those whom Django would tell of it are told from here.
        logger.error("the API failed: %s %s", request.method, request.path, exc_info=error)
        got_request_exception.send(sender=None, request=request)
        return _response(problem(500, request.path))
    body = problem(answer.status_code, request.path, *_said(answer.data))
    return _response(body, dict(answer.items()))


def problem(
    status_code: int,
    path: str,
    detail: str = "",
    errors: Mapping[str, list[str]] | None = None,
) -> dict[str, Any]:
    """The body of a problem.

    Args:
        status_code: Of the response.
        path: Of the request.
        detail: What happened this time; the kind's own words if empty.
        errors: By field, what is wrong with it.
    """
    kind = KINDS.get(status_code, KINDS[500])
    body: dict[str, Any] = {
        "type": kind.address,
        "title": kind.title,
        "status": status_code,
        "detail": detail or kind.meaning,
        "instance": path,
    }
    return body | {"errors": errors} if errors else body


def problem_page(request: HttpRequest, status_code: int, detail: str = "") -> JsonResponse:
    """A problem where no view of the API was reached."""
    body = problem(status_code, request.path, detail)
    return JsonResponse(body, status=status_code, content_type=MEDIA_TYPE)


def _response(body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(body, body["status"], headers=headers, content_type=MEDIA_TYPE)


def _said(data: Any) -> tuple[str, dict[str, list[str]] | None]:
    """What REST framework says: a detail, or messages by field."""
    if isinstance(data, Mapping) and set(data) == {"detail"} and isinstance(data["detail"], str):
        return str(data["detail"]), None
    errors = _by_field(data)
    return " ".join(f"{name}: {texts[0]}." for name, texts in errors.items()), errors


def _by_field(data: Any, name: str = "") -> dict[str, list[str]]:
    """Messages by field, one field of another written ``outer.inner``."""
    if isinstance(data, Mapping):
        found: dict[str, list[str]] = {}
        for inner, messages in data.items():
            found |= _by_field(messages, f"{name}.{inner}" if name else str(inner))
        return found
    messages = data if isinstance(data, list | tuple) else [data]
    return {name or "non_field_errors": [str(message) for message in messages]}
