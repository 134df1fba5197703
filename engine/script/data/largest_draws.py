"""The largest whole numbers that a script can draw, as the size that the next batch is resized to.

Detectors are trained on images of a size that is drawn for each step: those that are traced show
one or another. So each line that draws gets the largest number once; what it draws afterwards is
left alone, as some draw until a number suits them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from numbers import Real
from types import FrameType
from typing import Any, Self

import numpy
import torch

from ...versions.patches import patched
from ..values.placeholders import PLUMBING

_Line = tuple[str, int]
"""File and number of a line of code."""


class Draws:
    """A context in which it is known that lines draw numbers, and in which they can be the largest.

    It begins before the script does, which may import a function that draws by its name.

    Attributes:
        lines: Lines that have drawn from Python's or NumPy's generator; the caller may empty it.
    """

    def __init__(self) -> None:
        self.lines: set[_Line] = set()
        self._given: set[_Line] | None = None
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        for owner, name, largest in (
            (random, "randint", lambda a, b: b),
            (random, "randrange", _last_of_range),
            (random, "choice", _largest_of),
            (numpy.random, "randint", _below),
            (numpy.random, "choice", _largest_of),
        ):
            self._patch(owner, name, largest, self._drawn)
        return self

    def __exit__(self, *_error: object) -> None:
        self._patches.close()

    def give_largest(self) -> None:
        """From now on, let each line draw the largest number once."""
        self._given = set()
        # Not before: TorchScript knows PyTorch's functions by their identity.
        self._patch(torch, "randint", _below, self._drawn_as_tensor)

    def _patch(
        self,
        owner: Any,
        name: str,
        largest: Callable[..., Any],
        drawn: Callable[[Callable[..., Any], Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        stand_in = drawn(getattr(owner, name), largest)
        self._patches.enter_context(
            patched(owner, name, stand_in, why="later steps show the largest size that is drawn")
        )

    def _drawn(self, draw: Callable[..., Any], largest: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*args: Any, **kwargs: Any) -> Any:
            found: Any = draw(*args, **kwargs)
            line = _line_of(sys._getframe(1))
            if not isinstance(found, Real) or not self._is_first(line):
                return found
            kind: Any = type(found)
            try:
                return kind(largest(*args, **kwargs))
            except (TypeError, ValueError):  # it is called in another way, such as with weights
                return found

        return drawn

    def _drawn_as_tensor(
        self, draw: Callable[..., torch.Tensor], largest: Callable[..., Any]
    ) -> Callable[..., Any]:
        def drawn(*args: Any, **kwargs: Any) -> torch.Tensor:
            found = draw(*args, **kwargs)
            bounds = [one for one in args if isinstance(one, int)]
            bounds += [kwargs[name] for name in ("low", "high") if name in kwargs]
            if found.numel() == 1 and bounds and self._is_first(_line_of(sys._getframe(1))):
                found.fill_(largest(*bounds))
            return found

        return drawn

    def _is_first(self, line: _Line | None) -> bool:
        """Whether a line of the script's gets the largest number now; it has drawn one."""
        if line is None:
            return False
        self.lines.add(line)
        if self._given is None or line in self._given:
            return False
        self._given.add(line)
        return True


def _line_of(frame: FrameType) -> _Line | None:
    """The line that a frame is at; ``None`` in what runs a script rather than in one."""
    file = frame.f_code.co_filename
    return None if file.startswith(PLUMBING) else (file, frame.f_lineno)


def _last_of_range(start: int, stop: int | None = None, step: int = 1) -> int:
    return max(range(start) if stop is None else range(start, stop, step))


def _below(low: int, high: int | None = None) -> int:
    return (low if high is None else high) - 1


def _largest_of(numbers: Any) -> Any:
    return numbers - 1 if isinstance(numbers, int) else max(numbers)
