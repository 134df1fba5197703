"""Each request has an id, which its log lines, its response and what it submits carry."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from time import perf_counter

from django.http import HttpRequest, HttpResponseBase

from analyses.log_context import LONGEST_REQUEST_ID, of_request

HEADER = "X-Request-ID"
_SANE = re.compile(rf"[A-Za-z0-9._:-]{{1,{LONGEST_REQUEST_ID}}}")

logger = logging.getLogger(__name__)


class RequestIdMiddleware:
    """Takes the proxy's id of a request if it is a sane one, or makes one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The response, which names the id."""
        given = request.headers.get(HEADER, "")
        identifier = given if _SANE.fullmatch(given) else uuid.uuid4().hex
        begun = perf_counter()
        with of_request(identifier):
            response = self.get_response(request)
            milliseconds = (perf_counter() - begun) * 1000
            status = response.status_code
            # Without the query: it may hold what somebody searches for.
            logger.info("%s %s: %d, %.0f ms", request.method, request.path, status, milliseconds)
        response.headers[HEADER] = identifier
        return response
