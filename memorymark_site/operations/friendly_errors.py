"""Ends a command in one line where the database or a folder, not the command, is at fault."""

from __future__ import annotations

import sys
from collections.abc import Callable

from django.db import InterfaceError, OperationalError, ProgrammingError

from memorymark_site.environment import MANAGE

TRACEBACK = "--traceback"
"""Django's own option: show where it happened."""


def run(command: Callable[[list[str]], None], arguments: list[str]) -> None:
    """Run a command of ``manage.py``; exit with status 1 and a line if it cannot work.

    Args:
        command: Such as :func:`django.core.management.execute_from_command_line`.
        arguments: Its arguments, as in ``sys.argv``.
    """
    if TRACEBACK in arguments:
        command(arguments)
        return
    try:
        command(arguments)
    except (OperationalError, InterfaceError) as error:
        sys.exit(f"The database does not respond or cannot be used: {_first_line(error)}")
    except ProgrammingError as error:  # such as a missing table on PostgreSQL
        sys.exit(f"The database has other tables; run {MANAGE} migrate: {_first_line(error)}")
    except OSError as error:
        sys.exit(f"A file or folder cannot be used: {error}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
