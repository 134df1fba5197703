"""How a log line looks: for people, or one JSON object a line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from analyses import log_context
from memorymark_site.operations.logs.redaction import Redactor

_CONTROLS = {
    number: f"\\u{number:04x}"
    for number in (*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029)
    if chr(number) != "\n"
}
"""What a terminal obeys or an editor breaks lines at, and what is written instead, also in JSON."""


class ContextFilter(logging.Filter):
    """Notes on each record what it is about, while that is known."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through."""
        record.request_id = log_context.request_id()
        record.analysis_id = log_context.analysis_id()
        return True


class LineFormatter(logging.Formatter):
    """For people: time, level, logger, message, and what it is about.

    A message is one line, and what follows it is indented: who puts a line end into an address or
    a name cannot forge a line of the log.

    Args:
        secrets: What must not be written.
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
        return json.dumps(line, ensure_ascii=False).translate(_CONTROLS)


def _about(record: logging.LogRecord) -> dict[str, object]:
    """What :class:`ContextFilter` has noted, without what is not known."""
    about = {name: getattr(record, name, None) for name in ("analysis_id", "request_id")}
    return {name: value for name, value in about.items() if value}
