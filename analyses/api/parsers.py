"""How the API reads a request's body."""

from collections.abc import Mapping
from typing import IO, Any

from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser
from rest_framework.response import Response
from rest_framework.status import HTTP_413_REQUEST_ENTITY_TOO_LARGE
from rest_framework.views import exception_handler


class BoundedJSONParser(JSONParser):
    """JSON, refused with a 400 also where it is nested too deeply for Python's parser."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The body as plain values.

        Raises:
            ParseError: If the body is no JSON.
        """
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - nested too deeply") from error


class TooLarge(APIException):
    """The body is larger than ``DATA_UPLOAD_MAX_MEMORY_SIZE``."""

    status_code = HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "The request is too large; a config has at most 1 MiB, the rest is small."
    default_code = "too_large"


def handle_exception(error: Exception, context: dict[str, Any]) -> Response | None:
    """What the API answers to an exception: JSON also where Django refuses the body itself."""
    return exception_handler(TooLarge() if isinstance(error, RequestDataTooBig) else error, context)
