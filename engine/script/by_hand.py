"""Training steps without a ``torch.optim.Optimizer``: a step is what changes the weights.

``p.data.add_(p.grad, alpha=-lr)`` in a loop, and optimizers of a script's own, write to parameters
after a backward pass, or put other tensors in their place. Such a step has ended when the next
forward pass begins.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .values import ScriptValues


class Weights:
    """The trained weights of a script, and whether it has changed them since it learned."""

    def __init__(self) -> None:
        self._storages: set[int] = set()
        self._looked = -1  # the backward pass before the last look

    def may_have_changed(self, module: torch.nn.Module) -> bool:
        """Whether a backward pass has run since the last look; a module is about to run."""
        mode = getattr(next(module.parameters(), None), "fake_mode", None)
        return isinstance(mode, ScriptValues) and mode.learned != self._looked

    def have_changed(self, parameters: Iterable[torch.nn.Parameter]) -> bool:
        """Whether weights were changed since this was last true, or were ever."""
        trained = [one for one in parameters if one.requires_grad and isinstance(one, FakeTensor)]
        mode = trained[0].fake_mode if trained else None
        if not isinstance(mode, ScriptValues):
            return False
        before, self._storages = self._storages, {_storage(one) for one in trained}
        self._looked = mode.learned
        replaced = bool(before) and before != self._storages
        changed = replaced or bool(mode.written & self._storages)
        mode.written.clear()
        return changed


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
