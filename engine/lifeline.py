"""A process that ends when the one that started it does."""

from __future__ import annotations

import os
import threading
from typing import IO


def end_with(stream: IO[str]) -> None:
    """End this process at once when a stream ends: a pipe from the parent, which it keeps open.

    The operating system closes the pipe however the parent ends, SIGKILL included.
    """

    def wait() -> None:
        while stream.readline():
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
