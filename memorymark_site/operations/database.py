"""Whether the database responds now, for those that may not wait until it does."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

TIMEOUT_SECONDS = 3
"""Timeout of a new connection. libpq takes no less than 2."""


def need_response(connection: BaseDatabaseWrapper) -> None:
    """Raise unless PostgreSQL takes a new connection now; nothing is read.

    An open connection to a frozen server tells nothing: its kernel acknowledges what is sent, so
    no timeout of the network ends the wait. SQLite has no server that could freeze.

    Raises:
        django.db.Error: It did not within :data:`TIMEOUT_SECONDS`.
    """
    if connection.vendor != "postgresql":
        return
    asked: Any = connection.copy()  # its class has no type of its own
    asked.settings_dict["OPTIONS"] |= {"connect_timeout": TIMEOUT_SECONDS}
    try:
        with asked.wrap_database_errors:
            asked.connect()
    finally:
        asked.close()
