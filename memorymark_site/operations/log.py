"""Logging of all processes: its configuration, formats, and the request or analysis of each line.

A request's id is stored with the analyses it submits, so the lines of the site, of a worker and of
its engine on another machine are found by one id.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from memorymark_site.operations.redaction import Redactor

FORMATTERS = {"lines": "LineFormatter", "json": "JsonFormatter"}
"""Formatters by the values of ``LOG_FORMAT``."""


def logging_config(level: str, style: str, secrets: Iterable[str]) -> dict[str, Any]:
    """As :func:`logging.config.dictConfig` takes it.

    Args:
        level: The lowest that is logged, such as ``WARNING``.
        style: A key of :data:`FORMATTERS`.
        secrets: Texts to remove from each line.
    """
    package = "memorymark_site.operations.log"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"()": f"{package}.{FORMATTERS[style]}", "secrets": tuple(secrets)},
        },
        "filters": {"context": {"()": f"{package}.ContextFilter"}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "filters": ["context"],
            }
        },
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "propagate": True},
            # Not each 404 and each refused form.
            "django.request": {"level": "ERROR"},
            # Nor a traceback for each request by another host name; the page says what to do.
            "django.security.DisallowedHost": {"level": "CRITICAL"},
            # Never the statements: they contain what members typed, and digests of secrets.
            "django.db.backends": {"level": "INFO"},
            # Nor each worker heartbeat, every other second while a worker is free.
            "django-q": {"level": "WARNING"},
            "gunicorn.error": {"handlers": [], "propagate": True, "level": "WARNING"},
        },
    }


MAX_REQUEST_ID_LENGTH = 64

_request_id: ContextVar[str] = ContextVar("request_id", default="")
_analysis_id: ContextVar[int | None] = ContextVar("analysis_id", default=None)


def request_id() -> str:
    """The id of the current request, or of the one that submitted the current analysis."""
    return _request_id.get()


def analysis_id() -> int | None:
    """The current analysis, if any."""
    return _analysis_id.get()


@contextmanager
def of_request(identifier: str) -> Iterator[None]:
    """Log lines within name this request."""
    token = _request_id.set(identifier)
    try:
        yield
    finally:
        _request_id.reset(token)


@contextmanager
def of_analysis(number: int, identifier: str) -> Iterator[None]:
    """Log lines within name this analysis, and the request that submitted it."""
    token = _analysis_id.set(number)
    try:
        with of_request(identifier):
            yield
    finally:
        _analysis_id.reset(token)


_CONTROLS = {
    number: f"\\u{number:04x}"
    for number in (*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029)
    if chr(number) != "\n"
}
"""Characters that control a terminal or break lines, and their escapes, in JSON too."""


class ContextFilter(logging.Filter):
    """Adds the current request and analysis to each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id()
        record.analysis_id = analysis_id()
        return True


class LineFormatter(logging.Formatter):
    """Formatter for people: time, level, logger, message, request and analysis.

    A message is one line, and what follows it is indented, so that a line end in a name or an
    address cannot forge a log line.

    Args:
        secrets: Texts to remove.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redact = Redactor(secrets)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """The first line."""
        about = " ".join(f"{name}={value}" for name, value in _about(record).items())
        line = super().formatMessage(record).replace("\n", "\\n")
        return line + (f" [{about}]" if about else "")

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback if there is one, without secrets."""
        text = self._redact(super().format(record))
        return text.translate(_CONTROLS).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """Formatter for a log store: time, level, logger, message, process, request and analysis.

    Args:
        secrets: Texts to remove.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._redact = Redactor(secrets)

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object on one line; times are UTC."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redact(record.getMessage()),
            "process": record.process,
            **_about(record),
        }
        if record.exc_info:
            line["exception"] = self._redact(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = self._redact(self.formatStack(record.stack_info))
        return json.dumps(line, ensure_ascii=False).translate(_CONTROLS)


def _about(record: logging.LogRecord) -> dict[str, object]:
    """The fields that :class:`ContextFilter` added, if known."""
    about = {name: getattr(record, name, None) for name in ("analysis_id", "request_id")}
    return {name: value for name, value in about.items() if value}


HEADER = "X-Request-ID"
_SANE = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_REQUEST_ID_LENGTH}}}")

logger = logging.getLogger(__name__)


class RequestIdMiddleware:
    """Takes a request's id from the proxy if it is well-formed, or creates one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get(HEADER, "")
        identifier = given if _SANE.fullmatch(given) else uuid.uuid4().hex
        begun = perf_counter()
        with of_request(identifier):
            response = self.get_response(request)
            milliseconds = (perf_counter() - begun) * 1000
            status = response.status_code
            # Without the query, which may contain what someone searches for.
            logger.info("%s %s: %d, %.0f ms", request.method, request.path, status, milliseconds)
        response.headers[HEADER] = identifier
        return response
