"""Scaled losses, as fp16 needs them: in a script that has no framework to do it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any

import torch
from torch.optim import Optimizer

from ...versions.patches import patch_for_good


class LossScaling:
    """A ``GradScaler`` that scales losses and steps the optimizers of a script.

    Args:
        device: Type of the device that the script trains on.
    """

    def __init__(self, device: str) -> None:
        self._scaler = torch.amp.GradScaler(device)
        self._has_scaled = self._has_stepped = False
        patch_for_good(
            Optimizer,
            "__init__",
            self._making(Optimizer.__init__),
            why="an optimizer steps by the scaler of the losses",
        )

    def scaled(self, losses: Any) -> Any:
        """Losses, scaled."""
        self._has_scaled = True
        return self._scaler.scale(losses)

    def step_ended(self) -> None:
        """Let the scale be updated after a step of all optimizers."""
        if self._has_stepped:
            self._scaler.update()
        self._has_scaled = self._has_stepped = False

    def _making(self, init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            own = _Stepped(optimizer, optimizer.step)

            def step(_: Any, *args: Any, **kwargs: Any) -> Any:
                if not self._has_scaled:  # a framework scales, or nothing was differentiated
                    return own.step(*args, **kwargs)
                self._has_stepped = True
                return self._scaler.step(own, *args, **kwargs)  # type: ignore[arg-type]  # stands for one

            optimizer.step = MethodType(step, optimizer)  # schedulers wrap it again

        return made


class _Stepped:
    """An optimizer, with its own step."""

    def __init__(self, optimizer: Any, step: Callable[..., Any]) -> None:
        vars(self).update(_optimizer=optimizer, step=step)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_optimizer"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self._optimizer)[name] = value

    def __delattr__(self, name: str) -> None:
        del vars(self._optimizer)[name]
