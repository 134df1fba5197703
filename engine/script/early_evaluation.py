"""Evaluations between the first steps: a few batches of one stand for all that keep nothing.

A script that evaluates whenever ``step % 500 == 0`` does so after its first step, which alone may
take longer to trace than all that is asked about. In the last traced step, whose time counts, all
of its data are read, but no more: loaders that feed steps have more batches than there are data.
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
        cuts: Whether any is ended.
        is_early: Whether one may end now that has not read all of its data.
        kept: Bytes that are held now, on the GPU and on the host.

    Attributes:
        cut: Whether any was ended.
    """

    def __init__(
        self, cuts: bool, is_early: Callable[[], bool], kept: Callable[[], tuple[int, int]]
    ) -> None:
        self.cut = False
        self._cuts, self._is_early, self._kept = cuts, is_early, kept
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
        if self._cuts and iterator not in self._learning and self._is_enough(iterator):
            self.cut = True
            raise StopIteration

    def _is_enough(self, iterator: Any) -> bool:
        read, of_all = len(self._held) - 1, batches_of(iterator)
        if of_all is not None and read >= of_all:
            return read > 0
        keeps_nothing = len(set(self._held[2:])) == 1
        return read >= EVALUATED_BATCHES and keeps_nothing and self._is_early()

    def cause_of(self, error: EngineError) -> EngineError:
        """The error that a script has raised, or that an evaluation was cut short before it."""
        return CutTooShort(str(error)) if self.cut else error


def batches_of(iterator: Any) -> int | None:
    """Batches of all data of a loader; ``None`` where that has no length."""
    sampler = iterator._index_sampler
    try:
        samples, size = len(sampler.sampler), sampler.batch_size
    except (AttributeError, TypeError, NotImplementedError):
        return None
    return -(-samples // size) if isinstance(size, int) and size else None
