"""What the environment says of the one database, checked; set up so that all can write to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured


def from_environment(env: environ.Env, data_dir: Path) -> dict[str, Any]:
    """The database that ``DATABASE_URL`` names; SQLite in the data folder where it names none.

    Raises:
        ImproperlyConfigured: It names something else than SQLite or PostgreSQL.
    """
    default = {"ENGINE": "django.db.backends.sqlite3", "NAME": data_dir / "memorymark.sqlite3"}
    try:
        named = env.db_url("DATABASE_URL") if env("DATABASE_URL", default="") else default
    except ValueError:
        named = {}
    database: dict[str, Any] = named
    if not str(database.get("ENGINE", "")).endswith((".sqlite3", ".postgresql")):
        raise ImproperlyConfigured(  # not what it is: that has a password
            "DATABASE_URL names no database that MemoryMark knows; give one such as "
            "postgres://user:password@host/name, or none for SQLite in the data folder"
        )
    if database["ENGINE"].endswith("sqlite3"):
        # IMMEDIATE takes the write lock when a transaction starts: taken later, a lock that another
        # process holds fails at once, without waiting for the timeout (seconds).
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    return database | {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}
