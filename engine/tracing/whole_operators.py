"""Operators that arrive whole, though they are made of others.

Autograd takes them apart before a dispatch mode sees them: ``item()`` reads a value and ``linear``
is a matrix product. Under ``inference_mode``, and later of the tensors that were made there, a mode
has to do so itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_COMPOSITE = "CompositeImplicitAutograd"
_OWN_KERNEL = "CPU"
"""A build without CUDA has no kernels for it; what has one there has one here."""


@cache
def arrives_whole(func: Any) -> bool:
    """Whether an operator that a mode sees is made of others: autograd has left it whole.

    One that has a kernel besides, such as ``silu_backward``, runs that one.
    """
    if func.namespace == "prim":  # no operators of the dispatcher
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has_kernel(func.name(), _COMPOSITE)) and not has_kernel(func.name(), _OWN_KERNEL)


def in_parts(
    mode: TorchDispatchMode, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run an operator as those that it is made of, each of which a mode sees.

    Args:
        mode: The mode that it arrived at, which is not active meanwhile.
        func: The operator.
        args: Its arguments.
        kwargs: Its arguments by name.
    """
    with mode:
        return func.decompose(*args, **kwargs)
