"""Group norm on CUDA, whose kernels take images with their channels first.

Images that have their channels last are copied. Up to PyTorch 2.13 ``group_norm`` itself copies its
input, and the backward pass keeps the copy; the gradient is copied before its kernel. From 2.14 on
the kernels make all copies, and drop them (native/group_norm.cpp, pytorch/pytorch#186414). The CPU
has kernels for both layouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..versions.software import minor

_aten = torch.ops.aten

GROUP_NORM = _aten.native_group_norm.default
GROUP_NORM_BACKWARD = _aten.native_group_norm_backward.default

_IMAGES = {GROUP_NORM: 1, GROUP_NORM_BACKWARD: 2}
"""How many of an operator's first arguments are images; the gradient comes before the input."""


def group_norm_operators() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Operators that are composed on CUDA otherwise than on the CPU, by name."""
    if minor(torch.__version__) < (2, 14):
        yield "group_norm", _group_norm


def copied_bytes(func: Any, args: tuple[Any, ...]) -> int:
    """The bytes of the copies that a kernel makes while it runs; 0 of another operator.

    Args:
        func: The operator.
        args: Its arguments.
    """
    images: tuple[torch.Tensor, ...] = args[: _IMAGES.get(func, 0)]
    return sum(tensor.nbytes for tensor in images if not tensor.is_contiguous())


def _group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    samples, channels, *sides = input.shape
    normalized: torch.Tensor = _aten.native_group_norm(
        input.contiguous(), weight, bias, samples, channels, math.prod(sides), num_groups, eps
    )[0]
    return normalized
