"""The configuration of all logging, for the processes of Django and for gunicorn's first one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LINES, JSON = "lines", "json"
"""The values of ``LOG_FORMAT``."""

FORMATTERS = {LINES: "LineFormatter", JSON: "JsonFormatter"}
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def logging_config(level: str, style: str, secrets: Iterable[str]) -> dict[str, Any]:
    """As :func:`logging.config.dictConfig` takes it.

    Args:
        level: The least that is written, such as ``WARNING``.
        style: :data:`LINES` or :data:`JSON`.
        secrets: What must not be written.

    Raises:
        ValueError: If level or style is none; in words for whoever has set it.
    """
    if level not in LEVELS:
        raise ValueError(f"LOG_LEVEL={level} is not known; give one of {', '.join(LEVELS)}")
    if style not in FORMATTERS:
        raise ValueError(f"LOG_FORMAT={style} is not known; give {LINES} or {JSON}")
    package = "memorymark_site.operations.logs"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"()": f"{package}.formats.{FORMATTERS[style]}", "secrets": tuple(secrets)},
        },
        "filters": {"context": {"()": f"{package}.formats.ContextFilter"}},
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
            # Nor a traceback for each visitor who uses another name; the page says what to do.
            "django.security.DisallowedHost": {"level": "CRITICAL"},
            # Never the statements: they hold what members have typed, and digests of secrets.
            "django.db.backends": {"level": "INFO"},
            # Nor each canary, which sings every other second for as long as a worker is free.
            "django-q": {"level": "WARNING"},
            "gunicorn.error": {"handlers": [], "propagate": True, "level": "WARNING"},
        },
    }
