"""Turns at loading: engines that start together would slow each other down.

Each takes four seconds of a processor to load torch and transformers. With three of them on two
processors, the first request of a site that has just started would wait for all three.
"""

from __future__ import annotations

import fcntl
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from .process import processors

_LOOK_SECONDS = 0.05


def has_line(pipe: IO[str], seconds: float = 0.0) -> bool:
    """Whether a pipe has something to read, or has ended; waits so long for it."""
    return bool(select.select([pipe], [], [], seconds)[0])


@contextmanager
def turn(folder: Path | None, orders: IO[str], most: int | None = None) -> Iterator[None]:
    """Wait until fewer engines of this machine are loading, or until an order is waiting.

    Args:
        folder: The folder that the engines share; ``None`` takes no turns.
        orders: Where the orders come from.
        most: Number of engines that may load at the same time; by default one for each processor
            but one, which pages and orders use meanwhile.
    """
    count = most or max(1, processors() - 1)
    with ExitStack() as held:
        places = [] if folder is None else _places(folder, count, held)
        while places and not any(map(_is_taken, places)):
            if has_line(orders, _LOOK_SECONDS):
                break
        yield


def _places(folder: Path, count: int, held: ExitStack) -> list[IO[bytes]]:
    """One file to lock for each engine that may load; none where nothing can be written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = [folder / f"loading-{number}.lock" for number in range(count)]
        return [held.enter_context(file.open("ab")) for file in files]
    except OSError:
        return []


def _is_taken(place: IO[bytes]) -> bool:
    """Lock a place; false if another engine has it. It is free once closed, or its process ends."""
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
