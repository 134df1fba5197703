"""Operators that arrive whole, as those that are made of others do under ``inference_mode``.

Elsewhere autograd takes them apart before a dispatch mode sees them: ``item()`` reads a value and
``linear`` is a matrix product. Without autograd a mode has to do so itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_COMPOSITE = "CompositeImplicitAutograd"


def arrives_whole(func: Any) -> bool:
    """Whether an operator is made of others that autograd has not taken it apart into."""
    return torch.is_inference_mode_enabled() and _is_composite(func)


@cache
def _is_composite(func: Any) -> bool:
    if func.namespace == "prim":  # no operators of the dispatcher
        return False
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE))


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
