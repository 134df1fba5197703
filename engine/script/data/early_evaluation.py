"""Evaluations between the first steps: a few batches of one stand for all that keep nothing.

A script that evaluates whenever ``step % 500 == 0`` does so after its first step, which alone may
take longer to trace than all that is asked about. In the last traced step, whose time counts, the
operations of one batch stand for those of each that is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import EngineError
from ...tracing.trace import Operation
from .evaluated import EvaluatedData, batches_of

EVALUATED_BATCHES = 4
"""Batches of an evaluation that are run: the last three tell what each of the others adds."""


_WHOLE = 2
"""The latest of these batches whose passes are run: from the next on, they are like those before
them (:mod:`..process.passes_in_a_row`)."""


class CutTooShort(EngineError):
    """The script fails after an evaluation of it was cut short, which may be why."""


class EarlyEvaluations:
    """Ends the evaluations of a script early, in a fork.

    Args:
        evaluated: The data that it evaluates.
        cuts: Whether any is ended.
        is_early: Whether one may end now that has not read all of its data.
        kept: Bytes that are held now, on the GPU and on the host.
        timed: Operations of the trace, where the time of an evaluation that ends counts;
            ``None`` elsewhere.

    Attributes:
        cut: Whether any was ended.
    """

    def __init__(
        self,
        evaluated: EvaluatedData,
        cuts: bool,
        is_early: Callable[[], bool],
        kept: Callable[[], tuple[int, int]],
        timed: Callable[[], list[Operation] | None] = lambda: None,
    ) -> None:
        self.cut = False
        self._evaluated, self._cuts = evaluated, cuts
        self._is_early, self._kept, self._timed = is_early, kept, timed
        self._held: list[tuple[int, int]] = []  # before each of its batches
        self._begun: list[int] = []  # number of timed operations before each of them

    def before_read(self, iterator: Any) -> None:
        """A batch is wanted; raises ``StopIteration`` where the evaluation has shown enough."""
        read = self._evaluated.read_of(iterator) - 1  # without the one that is wanted
        operations = self._timed()
        if read <= 0:
            self._held, self._begun = [], []
        self._held.append(self._kept())
        self._begun.append(len(operations or ()))
        if self._cuts and read >= EVALUATED_BATCHES and self._is_early() and self._keeps_nothing():
            if operations is not None:
                left = batches_of(iterator._index_sampler)
                if left is None:
                    return
                begin, end = self._begun[_WHOLE : _WHOLE + 2]
                operations += operations[begin:end] * (left - read)
            self.cut = True
            raise StopIteration

    def _keeps_nothing(self) -> bool:
        return len(set(self._held[2:])) == 1

    def cause_of(self, error: EngineError) -> EngineError:
        """The error that a script has raised, or that an evaluation was cut short before it."""
        return CutTooShort(str(error)) if self.cut else error
