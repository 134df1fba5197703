"""Every error as problem details (RFC 9457), and the error pages outside ``/api/``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.core.signals import got_request_exception
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler

from memorymark_site.operations import error_pages

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
KINDS_ADDRESS = "/api/docs/problems/"
QUEUE_SECONDS = 30
"""Retry delay, in seconds, when a member has too much in the queue."""


@dataclass(frozen=True)
class Kind:
    """A kind of problem: one for each status code.

    Attributes:
        name: The end of the problem's ``type``.
        title: What happened, without details.
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
        Kind(400, "invalid", "Invalid request",
             "Nothing was changed. errors says what to do, by wrong field."),
        Kind(401, "not-signed-in", "Not signed in",
             "Send the header Authorization: Token mm_… with a valid token."),
        Kind(403, "not-allowed", "Not allowed",
             "Only an admin or the owner may do this. A token needs write access; a session needs "
             "the CSRF token."),
        Kind(404, "not-found", "Not found",
             "It was deleted, you have no access to it, or the address is mistyped."),
        Kind(405, "method-not-allowed", "Method not allowed",
             "The header Allow lists the methods of this address."),
        Kind(406, "not-acceptable", "Not acceptable",
             "The API responds in JSON: accept application/json, or leave Accept out."),
        Kind(409, "conflict", "Not possible in its present state",
             "Read it again: it has changed, or is not ready for this yet. Nothing was changed."),
        Kind(412, "changed", "Changed by someone else",
             "Read it again, look at what is there now, and send your change with its new ETag. "
             "Nothing was changed."),
        Kind(413, "too-large", "Request too large",
             "A config may have at most 1 MiB."),
        Kind(415, "unsupported-media-type", "Unsupported format",
             "Send JSON, with the header Content-Type: application/json."),
        Kind(422, "key-used", "Idempotency-Key already used",
             "It was used with another body. Create a new key for each request."),
        Kind(429, "too-many", "Too many requests",
             "Wait for the seconds in Retry-After. To wait for a result, use ?wait= instead of "
             "polling."),
        Kind(500, "failure", "Internal error",
             "This is a fault of the site; its log has the details."),
        Kind(503, "away", "The database does not respond",
             "Try again after the seconds in Retry-After."),
    )
}  # fmt: skip
"""Titles by status code."""


class Conflict(exceptions.APIException):
    """The request is not possible in the present state."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"


class Changed(exceptions.APIException):
    """``If-Match`` names another version than the present one."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_code = "changed"


class TooLarge(exceptions.APIException):
    """The body is larger than ``DATA_UPLOAD_MAX_MEMORY_SIZE``."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "The request is too large; a config may have at most 1 MiB."
    default_code = "too_large"


class QueueIsFull(exceptions.APIException):
    """The member has too many analyses waiting and running."""

    status_code = status.HTTP_429_TOO_MANY_REQUESTS
    default_code = "queue_full"
    wait = QUEUE_SECONDS


class Away(exceptions.APIException):
    """The database does not respond."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = "The database does not respond. Nothing was changed. Try again."
    wait = error_pages.AWAY_RETRY_SECONDS


def handle_exception(error: Exception, context: dict[str, Any]) -> Response:
    request = context["request"]
    if isinstance(error, RequestDataTooBig):
        error = TooLarge()
    elif isinstance(error, Http404):  # Django's text names a class and a query
        error = exceptions.NotFound(KINDS[404].meaning)
    elif isinstance(error, error_pages.AWAY):
        logger.error("the database does not respond", exc_info=error)
        error = Away()
    answer = exception_handler(error, context)
    if answer is None:
        # The exception ends here, so send the signal that Django would send.
        logger.error("the API failed: %s %s", request.method, request.path, exc_info=error)
        got_request_exception.send(sender=None, request=request)
        return _response(problem(500, request.path))
    body = problem(answer.status_code, request.path, *_detail_and_errors(answer.data))
    return _response(body, dict(answer.items()))


def problem(
    status_code: int,
    path: str,
    detail: str = "",
    errors: Mapping[str, list[str]] | None = None,
) -> dict[str, Any]:
    """The body of a problem.

    Without ``detail``, it is the meaning of the kind.
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
    """The response where the request did not reach a view of the API."""
    body = problem(status_code, request.path, detail)
    return JsonResponse(body, status=status_code, content_type=MEDIA_TYPE)


def _response(body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(body, body["status"], headers=headers, content_type=MEDIA_TYPE)


def _detail_and_errors(data: Any) -> tuple[str, dict[str, list[str]] | None]:
    """Detail and messages by field of a response of REST framework."""
    if isinstance(data, Mapping) and set(data) == {"detail"} and isinstance(data["detail"], str):
        return str(data["detail"]), None
    errors = _by_field(data)
    return " ".join(f"{name}: {texts[0]}." for name, texts in errors.items()), errors


def _by_field(data: Any, name: str = "") -> dict[str, list[str]]:
    """Messages by field; a nested field is named ``outer.inner``."""
    if isinstance(data, Mapping):
        found: dict[str, list[str]] = {}
        for inner, messages in data.items():
            found |= _by_field(messages, f"{name}.{inner}" if name else str(inner))
        return found
    messages = data if isinstance(data, list | tuple) else [data]
    return {name or "non_field_errors": [str(message) for message in messages]}


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not _is_of_api(request):
        return error_pages.bad_request(request, exception)
    if isinstance(exception, error_pages.TOO_LARGE):
        return problem_page(request, 413)
    return problem_page(request, 400, "This request cannot be read.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_of_api(request):
        return problem_page(request, 404, "Nothing is at this address; see /api/docs/")
    return defaults.page_not_found(request, exception)


def failed(request: HttpRequest) -> HttpResponse:
    error = sys.exc_info()[1]  # Django calls this while it handles the error, and does not pass it
    if not _is_of_api(request):
        return error_pages.failed(request, error)
    response = problem_page(request, 503 if isinstance(error, error_pages.AWAY) else 500)
    if isinstance(error, error_pages.AWAY):
        response["Retry-After"] = str(error_pages.AWAY_RETRY_SECONDS)
    return response


def _is_of_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")
