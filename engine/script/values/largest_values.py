"""Values with which a step takes the most memory, where memory depends on values.

A truth has two answers, and a count of what is true in a mask is no larger than the mask: there the
larger memory is predicted, and the answer says so. Codebooks that replace their dead entries are
like that (``if dead.any(): ... samples[:dead.sum()]``). Any other number may be of any size, so
there is no prediction where memory depends on one, and the error names the line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from ...core.errors import EngineError
from ...tracing.trace import Trace
from .placeholders import (
    BeginWith,
    DependsOnValues,
    Line,
    Placeholders,
    Values,
    check_values,
    takes_more,
)

_MAX_LINES = 6
"""Lines on which memory may depend; more are of a script that branches in each of its layers."""


@dataclass(frozen=True)
class Settled:
    """Steps whose memory depends on no value any more.

    Attributes:
        trace: Trace of the steps.
        values: Values that were read, and got.
        decided: Lines whose values were chosen so that memory is at its largest.
        alike: Whether all other values gave the same, without an error.
    """

    trace: Trace
    values: Values
    decided: tuple[Line, ...] = ()
    alike: bool = False

    def at(self, line: Line, there: Placeholders) -> Settled:
        """The same steps, which got the placeholder of a line because it was chosen."""
        at = {**self.values.placeholders.at, line: there}
        given = replace(self.values.placeholders, at=at)
        return Settled(self.trace, replace(self.values, placeholders=given), (*self.decided, line))


def settle(begin_with: BeginWith, trace: Trace, values: Values) -> Settled:
    """Choose values until memory does not depend on the others.

    Args:
        begin_with: Begins to trace anew.
        trace: Trace that was made with the first values that let the steps run.
        values: Values that were read then.

    Raises:
        DependsOnValues: If memory depends on a number that may be of any size.
    """
    settled = Settled(trace, values)
    while True:
        try:
            alike = check_values(begin_with, settled.trace, settled.values)
        except DependsOnValues as error:
            if len(settled.decided) == _MAX_LINES or not _is_bounded(settled.values, error):
                raise
            settled = _largest(begin_with, settled, error.read_at)
        else:
            return replace(settled, alike=alike)


def _is_bounded(values: Values, error: DependsOnValues) -> bool:
    """Whether a line reads truths alone, or counts of what is true."""
    kinds = values.types[error.read_at]
    return kinds == {torch.bool} or error.read_at not in values.uncounted


def _largest(begin_with: BeginWith, settled: Settled, line: Line) -> Settled:
    """The steps with the answer on a line that makes them take the most memory."""
    given = settled.values.placeholders
    found = settled.at(line, given)
    for other in _others(given, line, settled.values.types[line]):
        values = settled.values.others(other, found.trace)
        try:
            trace = begin_with(values)()
        except EngineError as error:
            if takes_more(error, found.trace):
                raise DependsOnValues(settled.values.users[line], line) from error
            continue  # a training run that goes on has other values
        # The most that there can be is so at other batch sizes too; a placeholder may fit but one.
        if trace.peak_of_last_step() >= found.trace.peak_of_last_step():
            found = Settled(trace, values, (*settled.decided, line))
    return found


def _others(given: Placeholders, line: Line, kinds: set[torch.dtype]) -> Iterator[Placeholders]:
    """Placeholders that may take more memory on a line that reads values of these formats.

    Each truth is tried with the largest counts, which the code behind it may ask for.
    """
    for truth in (True, False) if torch.bool in kinds else (given.truth,):
        there = replace(given, truth=truth, counts_all=True, at={})
        yield replace(given, counts_all=True, at={**given.at, line: there})
