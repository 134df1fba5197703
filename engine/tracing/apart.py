"""Work that a trace runs and the script did not: hooks that follow the script look away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class _Looks:
    away = False


@contextmanager
def apart_from_hooks() -> Iterator[None]:
    """Run something of ours, for as long as the context lasts."""
    before, _Looks.away = _Looks.away, True
    try:
        yield
    finally:
        _Looks.away = before


def runs_apart() -> bool:
    """Whether what runs now is none of the script's doing."""
    return _Looks.away
