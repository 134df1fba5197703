"""Evaluations between the first steps: a few batches of one stand for all that keep nothing.

A script that evaluates whenever ``step % 500 == 0`` does so after its first step, which alone may
take longer to trace than all that is asked about. The last traced step is never cut short.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from ..core.errors import EngineError
from ..tracing.beside import runs_beside

EVALUATED_BATCHES = 4
"""Batches of an evaluation that are run: the last three tell what each of the others adds."""


class CutTooShort(EngineError):
    """The script fails after an evaluation of it was cut short, which may be why."""


class EarlyEvaluations:
    """Ends the evaluations of a script early, in a fork.

    Args:
        may_cut: Whether an evaluation may end now.
        kept: Bytes that are held now, on the GPU and on the host.

    Attributes:
        cut: Whether any was ended.
    """

    def __init__(self, may_cut: Callable[[], bool], kept: Callable[[], tuple[int, int]]) -> None:
        self.cut = False
        self._may_cut, self._kept = may_cut, kept
        self._learning: weakref.WeakSet[Any] = weakref.WeakSet()  # what feeds passes with gradients
        self._iterator: Any = None  # the latest, as long as no such pass has come
        self._held: list[tuple[int, int]] = []  # before each of its batches
        self._looked_at = False  # by a pass without gradients
        register_module_forward_pre_hook(self._forward)

    def _forward(self, module: torch.nn.Module, args: object) -> None:
        if runs_beside() or torch._C._current_graph_task_id() != -1:
            return
        if torch.is_grad_enabled() and self._iterator is not None:
            self._learning.add(self._iterator)
            self._iterator = None
        self._looked_at = True

    def before_read(self, iterator: Any) -> None:
        """A batch is wanted; raises ``StopIteration`` where the evaluation has shown enough."""
        if iterator is not self._iterator or not self._looked_at:
            self._iterator, self._held = iterator, []
        self._looked_at = False
        self._held.append(self._kept())
        if len(self._held) <= EVALUATED_BATCHES or iterator in self._learning:
            return
        keeps_nothing = len(set(self._held[2:])) == 1
        if keeps_nothing and self._may_cut():
            self.cut = True
            raise StopIteration

    def cause_of(self, error: EngineError) -> EngineError:
        """The error that a script has raised, or that an evaluation was cut short before it."""
        return CutTooShort(str(error)) if self.cut else error
