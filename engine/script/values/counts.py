"""The most that a number can be which a script reads, where nobody knows it.

A count of what is true in a mask, ``int(mask.sum())``, is at most the number of elements, and
``mask.sum(1).max()`` at most the length of a row. Whole numbers picked from known ones, by indices
or a mask that nobody knows, are at most the largest of these: ``int(graph_of_node[kept].max())``.
What is computed from either otherwise is not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

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

_PICKING = {
    _aten.index.Tensor,
    _aten.index_select.default,
    _aten.gather.default,
    _aten.take.default,
    _aten.masked_select.default,
}
"""Operators whose result is picked from their first argument."""


def follow_counts(func: Any, args: Sequence[Any], output: Any) -> None:
    """Record the most that is in the result of an operator.

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
    elif func in _PICKING:
        if (most := _most_in(given)) is not None:
            setattr(output, _MOST, most)
    elif _MOST in vars(given) and (func.is_view or func in _KEEPING):
        for one in output if isinstance(output, list | tuple) else [output]:
            setattr(one, _MOST, vars(given)[_MOST])


def most_of(tensor: torch.Tensor) -> int | None:
    """The most that a number can be; ``None`` where that is not known."""
    most: int | None = vars(tensor).get(_MOST)
    return most


def _most_in(tensor: torch.Tensor) -> int | None:
    """The most that is in a tensor of whole numbers."""
    known = tensor.constant if isinstance(tensor, FakeTensor) else None
    if known is None:
        return most_of(tensor)
    if known.dtype is torch.bool or known.dtype.is_floating_point or known.dtype.is_complex:
        return None
    with _disable_current_modes():
        return int(known.max()) if known.numel() else None
