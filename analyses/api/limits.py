"""Limits of the API: requests per minute for each member, and the nesting of JSON."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.db import DatabaseError
from django.utils.http import parse_header_parameters
from rest_framework.exceptions import ParseError, UnsupportedMediaType
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from analyses.api.idempotency import is_replay
from analyses.api.units import PERIOD_SECONDS, spend

logger = logging.getLogger(__name__)

ENGINE_COST = 10
"""Units of a request that makes the engine work."""


class MemberThrottle(BaseThrottle):
    """Refuses requests of a member whose units are spent.

    A view may have ``costs``: the units of a request by action, or by method in a plain view.
    Others cost one.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        rate = settings.API_UNITS_PER_MINUTE
        if not rate or not request.user.pk:
            return True
        cost = getattr(view, "costs", {}).get(getattr(view, "action", request.method), 1)
        try:
            if cost > 1 and is_replay(request):  # no engine works on it
                cost = 1
            self._seconds = spend(request.user.pk, cost * PERIOD_SECONDS / rate)
        except (OSError, DatabaseError):  # a full disk should not close the API
            logger.exception("requests of the API cannot be counted")
            return True
        return self._seconds == 0

    def wait(self) -> float:
        return math.ceil(self._seconds)


class BoundedJSONParser(JSONParser):
    """JSON parser that explains errors; nesting too deep for Python's parser is a 400.

    A charset that Python does not know is a 415: the body would be read as UTF-8, whatever it is.
    """

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        _check_charset(media_type or "")
        try:
            return super().parse(stream, media_type, parser_context)
        except ParseError as error:
            why = error.__context__ or "it cannot be read"
            raise ParseError(f"The body is not JSON: {why}.") from error
        except RecursionError as error:
            raise ParseError("The body is nested too deeply.") from error


def _check_charset(media_type: str) -> None:
    charset = parse_header_parameters(media_type)[1].get("charset", "utf-8")
    try:
        b"{}".decode(charset, errors="replace")
    except LookupError as error:  # also for what is known and is no text, such as hex
        told = "The charset of the body is unknown; send JSON in UTF-8."
        raise UnsupportedMediaType(media_type, told) from error
