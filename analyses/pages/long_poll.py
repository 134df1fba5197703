"""Pages that wait hear of a change at once: their request is held until there is one."""

from __future__ import annotations

from collections.abc import Callable
from threading import BoundedSemaphore
from time import monotonic, sleep

HELD_SECONDS = 2.0
"""Seconds a request is held before the page repeats it."""

MAX_HELD = 2
"""In one process of the web server; its other threads stay free (``gunicorn_conf.threads``)."""

_FIRST_PAUSE_SECONDS = 0.03
_MAX_PAUSE_SECONDS = 0.25

_held = BoundedSemaphore(MAX_HELD)


def hear(has_changed: Callable[[], bool]) -> bool:
    """Wait for a change, for a while; not at all where as many others wait as may.

    Args:
        has_changed: Queries the database.

    Returns:
        Whether there was a change.
    """
    if has_changed():
        return True
    if not _held.acquire(blocking=False):
        return False
    try:
        until, pause = monotonic() + HELD_SECONDS, _FIRST_PAUSE_SECONDS
        while monotonic() < until:
            sleep(pause)
            if has_changed():
                return True
            pause = min(1.2 * pause, _MAX_PAUSE_SECONDS)
        return False
    finally:
        _held.release()
