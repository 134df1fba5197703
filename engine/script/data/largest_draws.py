"""The largest whole numbers that a script can draw, as the size that the next batch is resized to.

Detectors are trained on images of a size that is drawn for each step: those that are traced show
one or another. So each line that draws from Python's or NumPy's generator gets the largest number
once; what it draws afterwards is left alone, as some draw until a number suits them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from numbers import Real
from typing import Any

import numpy

from ...versions.patches import patched
from ..values.placeholders import PLUMBING


@contextmanager
def largest_draws() -> Iterator[None]:
    """Let each line draw the largest number once, for as long as the context lasts."""
    lines: set[tuple[str, int]] = set()
    with ExitStack() as stack:
        for owner, name, largest in (
            (random, "randint", lambda a, b: b),
            (random, "randrange", _last_of_range),
            (random, "choice", _largest_of),
            (numpy.random, "randint", _below),
            (numpy.random, "choice", _largest_of),
        ):
            draw = _once(getattr(owner, name), largest, lines)
            stack.enter_context(
                patched(owner, name, draw, why="later steps show the largest size that is drawn")
            )
        yield


def _once(
    draw: Callable[..., Any], largest: Callable[..., Any], lines: set[tuple[str, int]]
) -> Callable[..., Any]:
    """A function that draws, but for the first time on a line."""

    def drawn(*args: Any, **kwargs: Any) -> Any:
        found: Any = draw(*args, **kwargs)
        caller = sys._getframe(1)
        line = caller.f_code.co_filename, caller.f_lineno
        if line in lines or line[0].startswith(PLUMBING) or not isinstance(found, Real):
            return found
        lines.add(line)
        kind: Any = type(found)
        try:
            return kind(largest(*args, **kwargs))
        except (TypeError, ValueError):  # it is called in another way, such as with weights
            return found

    return drawn


def _last_of_range(start: int, stop: int | None = None, step: int = 1) -> int:
    return max(range(start) if stop is None else range(start, stop, step))


def _below(low: int, high: int | None = None) -> int:
    return (low if high is None else high) - 1


def _largest_of(numbers: Any) -> Any:
    return numbers - 1 if isinstance(numbers, int) else max(numbers)
