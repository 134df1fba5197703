"""The dispatch mode that others here are made from."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.utils._python_dispatch import TorchDispatchMode


def is_made_of_others(kind: type) -> bool:
    """Whether tensors of a class are made of other tensors, as quantized or sharded ones are."""
    return hasattr(kind, "__tensor_flatten__")


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a function of ``torch.func`` was given."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that a tensor is made of; itself, if of no others."""
    tensor = unwrapped(tensor)
    if not is_made_of_others(type(tensor)):
        return [tensor]
    # By __tensor_flatten__, some would read their device, which is asked for here
    slots = (getattr(tensor, name, None) for name in getattr(type(tensor), "__slots__", ()))
    held = (one for one in (*slots, *vars(tensor).values()) if isinstance(one, torch.Tensor))
    return [part for one in held for part in parts_of(one)]


class OperatorMode(TorchDispatchMode):
    """Handles each operator that runs while it is the active dispatch mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch has no type for it

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: PyTorch's guard against that would cost a tenth of a trace."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if any(map(is_made_of_others, types)):
            return NotImplemented  # it does it with those, which come here
        return self.handle(func, args, kwargs or {})

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator, or what is to be in its place.

        Args:
            func: The operator.
            args: Its operands by position.
            kwargs: Its operands by name.

        Returns:
            Its result.
        """
        raise NotImplementedError
