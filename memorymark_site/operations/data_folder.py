"""Whether the data folder can be written to, which every submission takes."""

from __future__ import annotations

import os
from tempfile import TemporaryFile
from typing import IO

from django.conf import settings

_PROBE_BYTES = 64 * 1024
"""More than a submission adds to the database's log."""


def _new_file() -> IO[bytes]:
    return TemporaryFile(dir=settings.DATA_DIR)


def not_writable() -> str:
    """Why nothing can be written there; empty if it can. Writes a file that no one sees."""
    try:
        with _new_file() as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""
