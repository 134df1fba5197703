"""Placeholders for the values of tensors that have none, and whether an answer depends on them.

Fake tensors have shapes but no values. Where a script reads one (``loss.item()``, ``if loss > 1``,
a sampler's seed), it gets a placeholder and goes on. Its steps are traced again with other
placeholders: where the memory stays the same, it does not depend on the values. Where it changes,
see :mod:`.largest_values`.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from random import Random
from types import FrameType
from typing import TypeVar

import torch

from ...core.errors import EngineError, InvalidInput
from ...tracing.beside import runs_beside
from ...tracing.trace import Trace
from ..factory import TRACING
from .alike import NUMBERS, alike
from .checks import passing_truth
from .limit import Limit, ReachesNoStep
from .searches import searches


class _Alike(Random):
    """Draws the least number, each time."""

    def randint(self, a: int, b: int) -> int:
        return a


ENDLESS = 2_000
"""Number of booleans, read in a row on one line, that is taken for a loop that only its values end,
as rejection sampling is."""

_ALIKE = _Alike()
Value = bool | int | float | complex


@dataclass(frozen=True)
class Line:
    """A line of code that reads a value.

    Attributes:
        file: Its path.
        number: From 1.
    """

    file: str
    number: int

    def __str__(self) -> str:
        code = linecache.getline(self.file, self.number).strip()
        return f"{Path(self.file).name}, line {self.number}" + (f" ({code})" if code else "")


@dataclass(frozen=True)
class Placeholders:
    """Placeholders that a script gets instead of values.

    Attributes:
        integer, real, truth: Placeholder of each type.
        apart: Largest difference between integers, so that a length computed from two of them is
            not always the same.
        counts_all: Whether a number is as large as it can be, where that is known.
        at: Other placeholders for some lines.
    """

    integer: int = 1
    real: float = 1.0
    truth: bool = False
    apart: int = 0
    counts_all: bool = False
    at: Mapping[Line, Placeholders] = field(default_factory=dict)

    def of(self, dtype: torch.dtype, line: Line, differs: Random, most: int | None = None) -> Value:
        """The placeholder for a value of that type, at most so large, that a line reads."""
        there = self.at.get(line, self)
        if there.counts_all and most is not None:
            return most
        if dtype is torch.bool:
            return there.truth
        if dtype.is_complex:
            return complex(there.real)
        if dtype.is_floating_point:
            return there.real
        return there.integer + differs.randint(0, there.apart)


FIRST = Placeholders()
OTHERS = (Placeholders(0, 0.0, True), Placeholders(7, 1e4, False, 3))
"""Zero lies below the thresholds that code compares with, and ten thousand above those of losses
and norms. An integer may be a length or an index, so it stays small."""
_LARGEST = Placeholders(counts_all=True)

_MAX_ATTEMPTS = 8
"""Attempts in a row that get no further than those before."""
_LATEST_LINES = 3


@dataclass
class Values:
    """Values that a script reads of its tensors while it is traced, and their placeholders.

    Attributes:
        placeholders: Placeholders that it gets.
        read: Number of times that each line got a placeholder.
        bounded: Number of times that each line selected by values, and got all that there could be.
        shared: Number of times that each line selected one choice among several, and got an even
            share.
        users: The user's own line behind each of these lines.
        latest: The number format that was read last on each of these lines, the latest line last.
        drawn: Whether integers were drawn at random.
        types: The number formats that were read on each line.
        uncounted: Lines that read a number of which nobody knows the most that it can be.
        operators: Number of operators that ran: how far the script got.
        limit: The most of them that may run before a step ends.
    """

    placeholders: Placeholders = FIRST
    read: Counter[Line] = field(default_factory=Counter)
    bounded: Counter[Line] = field(default_factory=Counter)
    shared: Counter[Line] = field(default_factory=Counter)
    users: dict[Line, Line] = field(default_factory=dict)
    latest: dict[Line, torch.dtype] = field(default_factory=dict)
    drawn: bool = False
    types: dict[Line, set[torch.dtype]] = field(default_factory=dict)
    uncounted: set[Line] = field(default_factory=set)
    operators: int = 0
    limit: Limit = field(default_factory=Limit)
    _in_a_row: int = 0
    _losses: int = 0  # of a search: each is less than the one before
    _random: Random = field(default_factory=lambda: Random(0))  # noqa: S311  # no secret

    def one_more_operator(self) -> None:
        """Count an operator, unless a thread beside training runs it.

        Raises:
            ReachesNoStep: If more run than may, as where a condition skips each step.
        """
        if runs_beside():
            return
        self.operators += 1
        self.limit.check(self.operators)

    def others(self, placeholders: Placeholders, trace: Trace) -> Values:
        """New values to compare with these, which may run far longer than these did, not for ever.

        Args:
            placeholders: Their placeholders.
            trace: The trace with these values.
        """
        made = Values(placeholders)
        made.limit.set_by(self.operators, trace.peak_by_category()[0])
        return made

    def answer(self, dtype: torch.dtype, most: int | None = None) -> Value:
        """The placeholder for the line that is running.

        Args:
            dtype: The number format of what it reads.
            most: The most that it can be; ``None`` where that is not known.

        Raises:
            EndlessLoop: If that line does nothing but ask.
        """
        if (found := self._in_a_search(dtype)) is not None:
            return found
        line = self._line()
        if runs_beside():  # whenever that is: training must get what it would without it
            return self.placeholders.of(dtype, line, _ALIKE)
        if dtype is torch.bool and line not in self.placeholders.at:
            passed = passing_truth(line.file, line.number)
            if passed is not None:
                return passed
        again = dtype is torch.bool and line == next(reversed(self.latest), None)
        self._in_a_row = self._in_a_row + 1 if again else 0
        if self._in_a_row > ENDLESS:
            raise EndlessLoop(f"{line} loops until a tensor has another value")
        self.read[line] += 1
        self.latest.pop(line, None)
        self.latest[line] = dtype
        self.types.setdefault(line, set()).add(dtype)
        if most is None and dtype is not torch.bool:
            self.uncounted.add(line)
        return self.placeholders.of(dtype, line, self._random, most)

    def _in_a_search(self, dtype: torch.dtype) -> Value | None:
        """The answer to an optimizer that searches by values; ``None`` to other code."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(PLUMBING):
            if searches(frame.f_code.co_filename):
                self._losses += 1
                return False if dtype is torch.bool else -float(self._losses)
            frame = frame.f_back
        return None

    def selected(self, *, evenly: bool) -> None:
        """Record that the line that is running selected by values.

        Args:
            evenly: Whether it got the share of one choice among several, or all that there can be.
        """
        if not runs_beside():
            (self.shared if evenly else self.bounded)[self._line()] += 1

    def lines(self) -> list[str]:
        """The user's own lines that got placeholders, in the order of the first time."""
        return list(dict.fromkeys(str(self.users[line]) for line in self.read))

    def bounded_lines(self) -> list[str]:
        """The user's own lines that selected by values, and got all that there could be."""
        return list(dict.fromkeys(str(self.users[line]) for line in self.bounded))

    def shared_lines(self) -> list[str]:
        """The user's own lines that selected one choice among several."""
        return list(dict.fromkeys(str(self.users[line]) for line in self.shared))

    def _line(self) -> Line:
        """The line that runs, outside PyTorch and the engine."""
        frame: FrameType | None = sys._getframe(1)
        found: Line | None = None
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(PLUMBING):
                found = found or Line(file, frame.f_lineno)
                if not file.startswith(_INSTALLED):
                    self.users.setdefault(found, Line(file, frame.f_lineno))
                    return found
            frame = frame.f_back
        found = found or Line("?", 0)
        self.users.setdefault(found, found)
        return found


PLUMBING = (str(Path(torch.__file__).parent), *(f"{room}/" for room in TRACING), "<")
_INSTALLED = (*(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")),)


class EndlessLoop(EngineError):
    """A loop that ends only when a tensor has another value than its placeholder."""


class DependsOnValues(EngineError):
    """Memory depends on a value, so nothing can be said without running the steps.

    Attributes:
        line: Line that reads it, in the user's own code.
        read_at: Line that reads it, in whosever code.
    """

    def __init__(self, line: Line, read_at: Line) -> None:
        self.line, self.read_at = line, read_at
        super().__init__(f"memory depends on a tensor's value, read at {line}")


BeginWith = Callable[[Values], Callable[[], Trace]]
"""Begins to trace with these values. What it returns waits for the trace, and records in them
what was read."""

_Found = TypeVar("_Found")


def first_that_runs(
    run_with: Callable[[Values], _Found], begin_at: Placeholders = FIRST
) -> tuple[_Found, Values]:
    """Result of the first placeholders that let the steps run to their end, and its values.

    Args:
        run_with: Runs them with these values, and records in them what was read.
        begin_at: The placeholders to try first.

    Raises:
        EngineError: What it raises if none do: the error of the attempt that got furthest.
    """
    attempts = [begin_at]
    refused: EngineError | None = None
    furthest, left = -1, _MAX_ATTEMPTS
    while attempts and left:
        left -= 1
        values = Values(attempts.pop(0))
        try:
            return run_with(values), values
        except InvalidInput:  # it ran, and the request does not fit it
            raise
        except EngineError as error:
            if values.operators > furthest and not (refused and isinstance(error, EndlessLoop)):
                refused, furthest, left = error, values.operators, _MAX_ATTEMPTS
            attempts = [*_alternatives(values), *attempts]  # where it got furthest first
    assert refused is not None  # noqa: S101 - at least one attempt was made
    raise refused


def _alternatives(values: Values) -> list[Placeholders]:
    """Placeholders that differ on one of the last lines that got one before the steps failed.

    The latest comes first; what was read there may also have been kept for later.
    """
    given = values.placeholders
    found: list[Placeholders] = []
    for line in list(reversed(values.latest))[:_LATEST_LINES]:
        if line in given.at:
            continue
        others = OTHERS[:1] if values.latest[line] is torch.bool else OTHERS  # one other truth
        if line not in values.uncounted and values.latest[line] is not torch.bool:
            others = (_LARGEST, *others)
        found += [replace(given, at={**given.at, line: other}) for other in others]
    return found


def check_values(begin_with: BeginWith, trace: Trace, values: Values) -> bool:
    """Make sure that other placeholders would have given the same trace.

    Where other values end the steps in an error, or run far longer without reaching them, they are
    not those of a training run that goes on: a check for NaN, or a condition that skips a step.

    Args:
        begin_with: Begins to trace anew.
        trace: Trace that :func:`first_that_runs` returned.
        values: Values that it returned with the trace.

    Returns:
        Whether all others gave it, so that none ended the steps in an error either.

    Raises:
        DependsOnValues: If they give other allocations.
    """
    if not values.read and not values.drawn:
        return True
    everywhere = [replace(other, at=values.placeholders.at) for other in OTHERS]
    begun = [begin_with(values.others(placeholders, trace)) for placeholders in everywhere]
    differing = [
        other
        for other, traced in zip(OTHERS, begun, strict=True)
        if _alike(traced, trace) is not True
    ]
    for other in differing:
        _compare_lines(begin_with, trace, values, other)
    return not differing


def _compare_lines(
    begin_with: BeginWith, trace: Trace, values: Values, other: Placeholders
) -> None:
    """Refuse steps that another placeholder changes on one line.

    Lines that may change alike are tried together first: where a condition prints, each line would
    need a trace of its own.
    """
    given = values.placeholders
    groups: dict[float, list[Line]] = {}
    for line in values.read:
        if line not in given.at:
            groups.setdefault(_may_pass(values.types[line]), []).append(line)

    def same(lines: list[Line], passing: float) -> bool | None:
        at = {**given.at, **dict.fromkeys(lines, other)}
        return _alike(begin_with(values.others(replace(given, at=at), trace)), trace, passing)

    for passing, lines in groups.items():
        if len(lines) > 1 and same(lines, passing):
            continue
        for line in lines:
            if same([line], passing) is False:
                raise DependsOnValues(values.users[line], line)


def _may_pass(types: set[torch.dtype]) -> float:
    """Bytes of a block that may come and go with values of these formats.

    A truth decides whether there is one, a real number most likely too, and an integer may be its
    length.
    """
    if types == {torch.bool}:
        return inf
    return NUMBERS if all(kind.is_floating_point or kind is torch.bool for kind in types) else 0


def _alike(traced_again: Callable[[], Trace], trace: Trace, passing: float = 0) -> bool | None:
    """Whether it takes the same memory; ``None`` if no step of it does."""
    try:
        traced = traced_again()
    except EngineError as error:
        return False if takes_more(error, trace) else None
    return alike(traced, trace, passing)


def takes_more(error: EngineError, trace: Trace) -> bool:
    """Whether steps that were given up had taken more memory than others do."""
    return (
        isinstance(error, ReachesNoStep)
        and error.peak_allocated_bytes > trace.peak_by_category()[0]
    )
