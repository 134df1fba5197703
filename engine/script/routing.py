"""Part of a tensor that a script selects by a choice among several, as a router of experts does.

``topk`` and ``argmax`` say which of N each row chose. ``chosen == 3`` is true for those rows that
chose the fourth; nobody knows for which, but all N together are as many as there are choices. So
each of them is taken to be chosen as often as any other: the sum of what is selected is right.

A choice and a comparison are known by their tensors; what is computed from them otherwise is not
followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import torch

_aten = torch.ops.aten

_AMONG, _SHARE = "_chosen_among", "_share_that_is_true"

_CHOOSING = {
    _aten.topk.default: 2,
    _aten.max.dim: 1,
    _aten.min.dim: 1,
    _aten.sort.default: 1,
    _aten.sort.stable: 1,
}
"""Operators that return values and which they were, by the position of the dimension."""
_COPYING = {_aten._to_copy.default, _aten.clone.default, _aten.contiguous.default}


def follow_choices(func: Any, args: Sequence[Any], output: Any) -> None:
    """Record what the result of an operator says about choices.

    Args:
        func: The operator.
        args: Its arguments.
        output: Its result.
    """
    if not args or not isinstance(args[0], torch.Tensor):
        return
    given = args[0]
    if func in _CHOOSING:
        at = _CHOOSING[func]
        _note(output[1], _AMONG, _length(given, args[at] if len(args) > at else -1))
    elif func is _aten.argmax.default and len(args) > 1 and args[1] is not None:
        _note(output, _AMONG, _length(given, args[1]))
    elif _AMONG in vars(given) and _asks_for_one(func, args):
        _note(output, _SHARE, Fraction(1, vars(given)[_AMONG]))
    elif func is _aten.any.dim and _SHARE in vars(given):  # of one row, no two choices are the same
        _note(output, _SHARE, min(Fraction(1), vars(given)[_SHARE] * _length(given, args[1])))
    elif func.is_view or func in _COPYING:
        for name in (_AMONG, _SHARE):
            if name in vars(given) and isinstance(output, torch.Tensor):
                _note(output, name, vars(given)[name])


def _asks_for_one(func: Any, args: Sequence[Any]) -> bool:
    """Whether choices are compared with a number, or, as in ``one_hot``, with every one of them."""
    if func is not _aten.eq.Tensor:
        return func is _aten.eq.Scalar
    chosen, other = args
    every = (vars(chosen)[_AMONG],)
    return bool(other.dim() == 0 or (other.shape == every and chosen.shape[-1:] == (1,)))


def expected_true(mask: torch.Tensor) -> int | None:
    """Expected number of true elements of a mask; ``None`` where that is not known."""
    share = vars(mask).get(_SHARE)
    return None if share is None else ceil(share * mask.numel())


def expected_counts(choices: torch.Tensor, among: int) -> list[int] | None:
    """Expected count of each of ``among`` choices; ``None`` if these are no choices among them."""
    if vars(choices).get(_AMONG) != among:
        return None
    each, more = divmod(choices.numel(), among)
    return [each + (one < more) for one in range(among)]


def _length(tensor: torch.Tensor, dimension: int) -> int:
    return tensor.shape[dimension] if tensor.dim() else 1


def _note(tensor: torch.Tensor, name: str, value: Any) -> None:
    setattr(tensor, name, value)
