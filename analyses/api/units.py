"""Units of the API that a member has left in this minute, counted over all processes of the site.

A member may spend a minute's units at once; they are refilled evenly (the generic cell rate
algorithm), so only one number is stored: the moment when all units are back.

On PostgreSQL it is in a table, so several machines that serve one site count together. SQLite has
one writer and serves one machine: there it is in a small file per member, locked while it changes,
which takes about ten microseconds. REST framework's throttle stores the times of all requests and
loses some between two processes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import closing
from io import FileIO
from pathlib import Path
from time import time

from django.conf import settings
from django.db import connection

PERIOD_SECONDS = 60.0

_MOMENT = struct.Struct("d")
# The database's clock, since those of the machines need not agree.
_SPEND = """
WITH clock AS (SELECT extract(epoch FROM clock_timestamp())::float8 AS now)
INSERT INTO analyses_spentunits AS spent (member_id, all_back)
SELECT %(member)s, now + %(seconds)s FROM clock WHERE %(seconds)s <= %(period)s
ON CONFLICT (member_id) DO UPDATE
SET all_back = greatest(spent.all_back, (SELECT now FROM clock)) + %(seconds)s
WHERE greatest(spent.all_back, (SELECT now FROM clock)) + %(seconds)s
    <= (SELECT now FROM clock) + %(period)s
RETURNING all_back
"""
_MISSING = """
WITH clock AS (SELECT extract(epoch FROM clock_timestamp())::float8 AS now)
SELECT greatest((SELECT all_back FROM analyses_spentunits WHERE member_id = %(member)s), now)
    + %(seconds)s - now - %(period)s
FROM clock
"""


def spend(member: int, seconds: float) -> float:
    """Spend ``seconds`` of a member's period if that much is left.

    Returns:
        Seconds to wait until that much is left; 0 if it was spent.

    Raises:
        OSError: The file cannot be written.
        DatabaseError: Nor the table.
    """
    if connection.vendor == "postgresql":
        return spend_in_table(member, seconds)
    return spend_in_file(Path(settings.DATA_DIR) / "api-units" / str(member), seconds, time())


def spend_in_table(member: int, seconds: float) -> float:
    """:func:`spend`, where several machines may serve the site."""
    values = {"member": member, "seconds": seconds, "period": PERIOD_SECONDS}
    with connection.cursor() as cursor:
        cursor.execute(_SPEND, values)
        if cursor.fetchone():
            return 0.0
        cursor.execute(_MISSING, values)
        (missing,) = cursor.fetchone()
    return max(0.0, float(missing))


def spend_in_file(path: Path, seconds: float, now: float) -> float:
    """:func:`spend`, by the file at ``path``."""
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
