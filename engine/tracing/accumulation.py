"""In-place addition of gradients by autograd.

Gradients that reach a tensor from several places are added up: of a shared weight, of a residual
stream, of the same model run twice. Autograd's engine writes the sum over the first one, if it is
the last to hold it (``accumulate`` and ``can_accumulate_inplace`` in
torch/csrc/autograd/input_buffer.cpp). It never does where a dispatch mode is active, as it is
where a step is traced: then there is one gradient more than in the real step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

_ADD = torch.ops.aten.add.Tensor
_ADD_IN_PLACE = torch.ops.aten.add_.Tensor
_PLAIN = (torch.Tensor, FakeTensor)

Holders = tuple[int, int]
"""Number of references to a tensor, and to its storage."""


def as_accumulated(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], engine_alone: Holders
) -> Any:
    """The operator that runs on a GPU for one that a dispatch mode sees.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Its keyword arguments.
        engine_alone: The result of :func:`held_by_engine`.

    Returns:
        Addition in place, where the engine adds to a gradient that nothing else holds; otherwise
        the operator itself.
    """
    if func is not _ADD or kwargs or torch.is_grad_enabled():
        return func
    held, added = args
    plain = type(held) in _PLAIN and type(added) in _PLAIN
    alone = plain and _holders(held) == engine_alone and held.shape == added.shape
    return _ADD_IN_PLACE if alone and _is_dense(held) else func


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a piece of memory, in any order of dimensions."""
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != filled:
            return False
        filled *= size
    return True


def _holders(tensor: torch.Tensor) -> Holders:
    storage = tensor.untyped_storage()
    references: int = tensor._use_count()  # type: ignore[attr-defined]  # PyTorch's stub lacks it
    return references, torch._C._storage_Use_Count(storage._cdata)


@cache
def held_by_engine() -> Holders:
    """The holders of a gradient that nothing but the engine holds, counted in a dispatch mode.

    Some are of the mode itself, and how many may differ by release; so it is tried out, which is
    not possible inside of a mode's operator.
    """
    counting = _Counting()
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        _disable_current_modes(),
        counting,
    ):
        leaf = torch.zeros(2, requires_grad=True)
        (leaf.sin() * leaf.cos()).sum().backward()
    return counting.found


class _Counting(TorchDispatchMode):
    """Counts the holders of what is added to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch has no types here
        self.found: Holders = (0, 0)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is _ADD:
            self.found = _holders(args[0])
        return func(*args, **(kwargs or {}))
