"""The most that a count of what is true in a mask can be, where nobody knows the mask.

``int(mask.sum())`` is at most the number of elements, and ``mask.sum(1).max()`` at most the length
of a row. What is computed from counts otherwise is not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .chosen_indices import chosen

_aten = torch.ops.aten

_MOST = "_counts_at_most"

_COUNTING = {
    _aten.sum.default,
    _aten.sum.dim_IntList,
    _aten.count_nonzero.default,
    _aten.count_nonzero.dim_IntList,
}
_KEEPING = {
    _aten._to_copy.default,
    _aten.clone.default,
    _aten.max.default,
    _aten.min.default,
    _aten.amax.default,
    _aten.amin.default,
}
"""Operators whose result is made of counts that they are given, beside views."""


def follow_counts(func: Any, args: Sequence[Any], output: Any) -> None:
    """Record what the result of an operator counts.

    Args:
        func: The operator.
        args: Its arguments.
        output: Its result.
    """
    if not args or not isinstance(args[0], torch.Tensor):
        return
    given = args[0]
    if func in _COUNTING:
        if given.dtype is torch.bool:
            known = chosen(given) if output.dim() == 0 else None
            most = given.numel() // max(1, output.numel()) if known is None else known
            setattr(output, _MOST, most)
    elif func._schema.is_mutable:
        vars(given).pop(_MOST, None)
    elif _MOST in vars(given) and (func.is_view or func in _KEEPING):
        for one in output if isinstance(output, list | tuple) else [output]:
            setattr(one, _MOST, vars(given)[_MOST])


def most_of(tensor: torch.Tensor) -> int | None:
    """The most that a number can be; ``None`` where it is no count."""
    most: int | None = vars(tensor).get(_MOST)
    return most
