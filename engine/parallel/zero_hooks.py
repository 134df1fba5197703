"""Hooks of ZeRO 3 for reads of a module's weights, and for gradients that are there.

As DeepSpeed 0.19.8 does it (deepspeed/runtime/zero/parameter_offload.py): a gradient is that of an
alias, which the module alone takes or gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


class Readable(dict[str, Any]):
    """A module's weights, which report that they are read (``ZeROOrderedDict``)."""

    def __init__(
        self, weights: Mapping[str, Any], read: Callable[[torch.nn.Parameter], None]
    ) -> None:
        super().__init__(weights)
        self._tell = read

    def __getitem__(self, name: str) -> Any:
        weight = super().__getitem__(name)
        if weight is not None:
            self._tell(weight)
        return weight


class _Watched(torch.autograd.Function):
    """An alias of a tensor that reports when the gradient of that tensor is there."""

    @staticmethod
    def forward(ctx: Any, then: Callable[[], None], tensor: torch.Tensor) -> torch.Tensor:
        ctx.then = then
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.then()
        return None, gradient


def watched(tensor: torch.Tensor, then: Callable[[], None]) -> torch.Tensor:
    """A tensor, with a call once its gradient is there."""
    if not tensor.requires_grad:
        return tensor
    alias: torch.Tensor = _Watched.apply(then, tensor)  # type: ignore[no-untyped-call]  # PyTorch has none
    return alias


def watched_together(given: Any, then: Callable[[], None]) -> Any:
    """Inputs of a module, with a call once the gradients of all of them are there."""
    remaining = 0

    def arrived() -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            then()

    def watch(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal remaining
        remaining += tensor.requires_grad
        return watched(tensor, arrived)

    return each_tensor(given, watch)


def each_tensor(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A module's inputs or outputs with each tensor changed, in the containers DeepSpeed knows."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        items = [each_tensor(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = each_tensor(item, change)
    return value
