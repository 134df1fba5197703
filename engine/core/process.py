"""This process: ending with its parent, its memory and garbage, and where its user keeps state."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import IO

CALIBRATION_VARIABLE = "ENGINE_CALIBRATION"
"""Environment variable with the file of your own residuals, for :func:`calibration_file`."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_NEW_OBJECTS = 100_000
"""Number of new objects after which Python looks for garbage. Torch and transformers make hundreds
of thousands that stay; looking through them after every 700, Python's default, takes a tenth of a
command."""


def collect_rarely() -> None:
    """Let Python look for garbage less often, in a process that loads torch and traces."""
    gc.set_threshold(_NEW_OBJECTS)


def end_with(stream: IO[str]) -> None:
    """End this process at once when a pipe from its parent ends.

    The operating system closes the pipe however the parent ends, SIGKILL included.
    """
    die_with_parent()

    def wait() -> None:
        while stream.readline():
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def lines_of(stream: IO[str]) -> Iterator[str]:
    """Yield the lines of a pipe from the parent; each is done when the next is requested.

    If the pipe ends before a line is done, this process ends at once.
    """
    die_with_parent()
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


def die_with_parent() -> None:
    """Let the kernel kill this process with its parent, even if frozen; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def processors() -> int:
    """Number of processors that this process may use."""
    # Absent on macOS, which does not bind processes to processors.
    bound = getattr(os, "sched_getaffinity", None)
    return len(bound(0)) if bound else os.cpu_count() or 1


def peak_resident_bytes() -> int | None:
    """Peak resident memory of this process, including Python and libraries.

    ``None`` if the operating system does not report it (Windows).
    """
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB


def state_folder() -> Path:
    """Folder of MemoryMark's state for this user: ``~/.local/state/memorymark``, by XDG's rules."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "memorymark"


def calibration_file() -> Path:
    """The file of your own residuals, outside what is installed; it need not exist."""
    return Path(os.environ.get(CALIBRATION_VARIABLE) or state_folder() / "calibration.toml")
