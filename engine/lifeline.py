"""A process that ends when the one that started it does."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import IO

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with(stream: IO[str]) -> None:
    """End this process at once when a stream ends: a pipe from the parent, which it keeps open.

    The operating system closes the pipe however the parent ends, SIGKILL included.
    """
    _die_with_parent()

    def wait() -> None:
        while stream.readline():
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def lines_of(stream: IO[str]) -> Iterator[str]:
    """The lines of a pipe from the parent, one at a time; its end while one is worked on ends all.

    Yields:
        A line. Asking for the next one means that this one is done.
    """
    _die_with_parent()
    lines: SimpleQueue[str | None] = SimpleQueue()
    begun = done = 0

    def read() -> None:
        nonlocal begun
        while line := stream.readline():
            begun += 1
            lines.put(line)
        if begun > done:
            os._exit(1)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (line := lines.get()) is not None:
        yield line
        done += 1


def _die_with_parent() -> None:
    """Have the kernel end this process with its parent, even when it is frozen: on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
