"""Limits of the API: requests per minute for each member, and the nesting of JSON.

A request costs one unit, or more if it makes the engine work. A member may spend a minute's units
at once; they are refilled evenly (the generic cell rate algorithm), so only one number is stored:
the moment when all units are back.

It is in a small file per member, locked while it changes, which takes about ten microseconds. REST
framework's throttle stores the times of all requests and loses some between two processes; with the
database as its cache, every read would write, and SQLite has one writer. If several machines serve
the site, each counts for itself.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import struct
from collections.abc import Mapping
from contextlib import closing
from io import FileIO
from pathlib import Path
from time import time
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 60.0
ENGINE_COST = 10
"""Units of a request that makes the engine work."""

_MOMENT = struct.Struct("d")


class MemberThrottle(BaseThrottle):
    """Refuses requests of a member whose units are spent.

    A view may have ``costs``: the units of a request by action, or by method in a plain view.
    Others cost one.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        rate = settings.API_UNITS_PER_MINUTE
        if not rate or not request.user.pk:
            return True
        cost = getattr(view, "costs", {}).get(getattr(view, "action", request.method), 1)
        try:
            self._seconds = spend(_file_of(request.user.pk), cost * PERIOD_SECONDS / rate, time())
        except OSError:  # a full disk should not close the API
            logger.exception("requests of the API cannot be counted")
            return True
        return self._seconds == 0

    def wait(self) -> float:
        return math.ceil(self._seconds)


def spend(path: Path, seconds: float, now: float) -> float:
    """Spend ``seconds`` of the period if that much is left, by the file at ``path``.

    Returns:
        Seconds to wait until that much is left; 0 if it was spent.
    """
    with closing(_opened(path)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        stored = file.read(_MOMENT.size)
        all_back = _MOMENT.unpack(stored)[0] if len(stored) == _MOMENT.size else now
        # A moment further ahead than possible: the clock was set back.
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


class BoundedJSONParser(JSONParser):
    """Refuses JSON that is nested too deeply for Python's parser with a 400, not a 500."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - nested too deeply") from error
