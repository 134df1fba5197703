"""Waiting for an answer: bounded in time, and in how many wait at once."""

from __future__ import annotations

from collections.abc import Callable
from threading import BoundedSemaphore
from time import monotonic, sleep

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

LONGEST_WAIT_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.03
LONGEST_PAUSE_SECONDS = 1.0

seats = BoundedSemaphore(2)
"""So many of a process's four threads may wait for scripts; the others serve pages."""


def seconds_of(request: Request, usual: float = 0.0) -> float:
    """How long the address says to wait.

    Raises:
        ValidationError: It says something that is no number of seconds, or too many.
    """
    text = request.query_params.get("wait")
    try:
        seconds = usual if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_SECONDS:
        raise ValidationError({"wait": [f"give seconds from 0 to {LONGEST_WAIT_SECONDS:.0f}"]})
    return seconds


def wait_until(is_over: Callable[[], bool], seconds: float) -> None:
    """Return when it is over or the time is; at once where too many wait already.

    Looks often at first and then less so: an answer from a warm engine comes within a second or
    two, a measurement takes minutes.
    """
    if seconds <= 0 or not seats.acquire(blocking=False):
        return
    try:
        until, pause = monotonic() + seconds, LOOK_EVERY_SECONDS
        while not is_over() and (left := until - monotonic()) > 0:
            sleep(min(pause, left))
            pause = min(1.3 * pause, LONGEST_PAUSE_SECONDS)
    finally:
        seats.release()
