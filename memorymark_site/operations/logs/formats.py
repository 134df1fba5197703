"""How a log line looks: for people, or one JSON object a line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from analyses import log_context
from memorymark_site.operations.logs.redaction import Redactor


class ContextFilter(logging.Filter):
    """Notes on each record what it is about, while that is known."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through."""
        record.request_id = log_context.request_id()
        record.analysis_id = log_context.analysis_id()
        return True


class LineFormatter(logging.Formatter):
    """For people: time, level, logger, message, and what it is about.

    Args:
        secrets: What must not be written.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redact = Redactor(secrets)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """The first line."""
        about = " ".join(f"{name}={value}" for name, value in _about(record).items())
        return super().formatMessage(record) + (f" [{about}]" if about else "")

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback if there is one, without secrets."""
        return self._redact(super().format(record))


class JsonFormatter(logging.Formatter):
    """For a log store: time, level, logger, message, process and what it is about, by these names.

    Args:
        secrets: What must not be written.
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
        return json.dumps(line, ensure_ascii=False)


def _about(record: logging.LogRecord) -> dict[str, object]:
    """What :class:`ContextFilter` has noted, without what is not known."""
    about = {name: getattr(record, name, None) for name in ("analysis_id", "request_id")}
    return {name: value for name, value in about.items() if value}
