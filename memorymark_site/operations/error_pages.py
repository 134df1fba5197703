"""Error pages that use neither the database nor the session, which may be what failed.

They know the request alone: its theme, which is a cookie, and its address. The menu needs the
member, so it is left out.
"""

from __future__ import annotations

from http import HTTPStatus

from django import db
from django.core.exceptions import (
    BadRequest,
    DisallowedHost,
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from memorymark_site.operations.log import request_id

AWAY = (db.OperationalError, db.InterfaceError)
"""The errors of a database that does not respond."""

AWAY_RETRY_SECONDS = 5
"""Seconds to wait before trying again after the database did not respond."""

TOO_LARGE = (RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent)
"""The errors of a request beyond Django's ``DATA_UPLOAD_MAX_…``."""


def error_page(request: HttpRequest, status: HTTPStatus, **more: object) -> HttpResponse:
    """The page of a status.

    Args:
        request: The request that cannot be served.
        status: There has to be a template of its number.
        more: Further context of the template; ``retry_seconds`` is also sent as ``Retry-After``.
    """
    again = request.get_full_path() if request.method in ("GET", "HEAD") else "/"
    return _page(f"{status:d}.html", status, {"request": request, "again": again} | more)


def bad_request(request: HttpRequest, error: Exception) -> HttpResponse:
    """Django's ``handler400``; only the text of a :class:`BadRequest` is meant for people."""
    if isinstance(error, TOO_LARGE):
        return error_page(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return error_page(
        request,
        HTTPStatus.BAD_REQUEST,
        why=str(error) if isinstance(error, BadRequest) else "",
        is_unknown_host=isinstance(error, DisallowedHost),
    )


def failed(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    """Django's ``handler500``, which does not get the error."""
    if isinstance(error, AWAY):
        wait = AWAY_RETRY_SECONDS
        return error_page(request, HTTPStatus.SERVICE_UNAVAILABLE, retry_seconds=wait)
    return error_page(request, HTTPStatus.INTERNAL_SERVER_ERROR, request_id=request_id())


def form_expired(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's ``CSRF_FAILURE_VIEW``; Django logs the reason."""
    return _page("403_csrf.html", HTTPStatus.FORBIDDEN, {"request": request})


def _page(template: str, status: HTTPStatus, context: dict[str, object]) -> HttpResponse:
    """A template without context processors: those read the session."""
    response = HttpResponse(render_to_string(template, context), status=status)
    if "retry_seconds" in context:
        response["Retry-After"] = str(context["retry_seconds"])
    return response
