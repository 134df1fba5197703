"""How much a member may ask of the API: so many requests a minute, over all of its processes.

Each request costs one unit, one that makes the engine work more. A member may spend a minute's
units at once, and they come back evenly (the generic cell rate algorithm): what has to be kept is
one number, the moment at which all is back.

It is kept in a small file for each member, with a lock on it while it changes. That takes some ten
microseconds. The alternatives cost more for less: REST framework's own throttle keeps the times
of all requests and, between two processes, loses some; with the database as its cache, every read
would write, and SQLite has one writer. Several machines that serve the site count each for itself.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import struct
from contextlib import closing
from io import FileIO
from pathlib import Path
from time import time
from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 60.0
ENGINE_COST = 10
"""Units of a request that makes the engine work."""

_MOMENT = struct.Struct("d")


class MemberThrottle(BaseThrottle):
    """Refuses a member who has spent the minute's units.

    A view may have ``costs``, the units of a request by its method; others cost one.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether the member may; if so, it is paid for."""
        rate = settings.API_UNITS_PER_MINUTE
        if not rate or not request.user.pk:
            return True
        cost = getattr(view, "costs", {}).get(request.method, 1)
        try:
            self._seconds = spend(_file_of(request.user.pk), cost * PERIOD_SECONDS / rate, time())
        except OSError:  # a full disk should not close the API
            logger.exception("nobody counts the requests of the API")
            return True
        return self._seconds == 0

    def wait(self) -> float:
        """Whole seconds until the same request is let through."""
        return math.ceil(self._seconds)


def spend(path: Path, seconds: float, now: float) -> float:
    """Take a share of the period's time from what a file says is left.

    Args:
        path: The file; made where it is missing.
        seconds: The share.
        now: In seconds since some moment, the same for all who ask.

    Returns:
        Seconds to wait until there is so much again; 0 where it was taken.
    """
    with closing(_opened(path)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        stored = file.read(_MOMENT.size)
        all_back = _MOMENT.unpack(stored)[0] if len(stored) == _MOMENT.size else now
        # A moment further ahead than can be comes from a clock that was put back.
        all_back = min(max(all_back, now), now + PERIOD_SECONDS)
        missing = max(0.0, all_back + seconds - now - PERIOD_SECONDS)
        file.seek(0)
        file.write(_MOMENT.pack(all_back if missing else all_back + seconds))
        return missing


def _opened(path: Path) -> FileIO:
    flags = os.O_RDWR | os.O_CREAT
    try:
        return FileIO(os.open(path, flags, 0o600), "r+")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileIO(os.open(path, flags, 0o600), "r+")


def _file_of(member: int) -> Path:
    return Path(settings.DATA_DIR) / "api-units" / str(member)
