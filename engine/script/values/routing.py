"""Part of a tensor that a script selects by a choice among several, as a router of experts does.

``topk`` and ``argmax`` say which of N each row chose. ``chosen == 3`` is true for those rows that
chose the fourth; nobody knows for which, but all N together are as many as there are choices. So
each of them is taken to be chosen as often as any other: the sum of what is selected is right.

A table with a place for each choice, in which what was chosen is set (``gates.scatter(1, chosen,
weights)``), tells the same: as many of its elements as there are choices are not zero, and each of
its columns has an even share of them.

A choice, a comparison and a table are known by their tensors; what is computed from them otherwise
is not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import torch

from ...tracing.known_values import KnownValues

_aten = torch.ops.aten

_AMONG, _SHARE, _TABLE = "_chosen_among", "_share_that_is_true", "_table_of_choices"

_CHOOSING = {
    _aten.topk.default: 2,
    _aten.max.dim: 1,
    _aten.min.dim: 1,
    _aten.sort.default: 1,
    _aten.sort.stable: 1,
}
"""Operators that return values and which they were, by the position of the dimension."""
_COPYING = {_aten._to_copy.default, _aten.clone.default, _aten.contiguous.default}
_SETTING = {
    _aten.scatter.src,
    _aten.scatter.value,
    _aten.scatter_.src,
    _aten.scatter_.value,
}
_NOT_ZERO = {_aten.ne.Scalar, _aten.gt.Scalar}
"""Comparisons with zero that tell which elements of a table are set; weights are not negative."""


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
    elif func._schema.is_mutable:
        for name in (_SHARE, _TABLE):
            vars(given).pop(name, None)
    elif isinstance(output, torch.Tensor):
        _follow_copies(func, args, output)


def _follow_copies(func: Any, args: Sequence[Any], output: torch.Tensor) -> None:
    """Record what views, copies and comparisons with zero say, as what they are of does."""
    known = vars(args[0])
    if func in _NOT_ZERO and args[1] == 0:
        names: tuple[str, ...] = (_SHARE, _TABLE)
    elif func.is_view or func in _COPYING:
        names = (_AMONG, _SHARE, *([_TABLE] if output.shape == args[0].shape else []))
    else:
        return
    for name in names:
        _note(output, name, known.get(name))


def set_in_a_table(fake: KnownValues, func: Any, args: Sequence[Any]) -> Fraction | None:
    """Share of a table's elements that an operator will set, by choices; ``None`` for others.

    Args:
        fake: It knows values of tensors.
        func: The operator, which has not run yet.
        args: Its arguments.
    """
    if func not in _SETTING:
        return None
    table, dimension, chosen, value = args[:4]
    if not table.dim() or dimension % table.dim() != table.dim() - 1:
        return None
    among = table.shape[-1]
    whole_rows = chosen.shape[:-1] == table.shape[:-1]
    set_to_zero = not isinstance(value, torch.Tensor) and value == 0
    empty = fake.values(table) == frozenset({0})
    if vars(chosen).get(_AMONG) != among or not whole_rows or not empty or set_to_zero:
        return None
    return Fraction(chosen.shape[-1], among)


def follow_table(table: torch.Tensor, share: Fraction) -> None:
    """Record that a table has been set so."""
    _note(table, _SHARE, share)
    _note(table, _TABLE, True)


def counted(func: Any, args: Sequence[Any]) -> list[int] | None:
    """Sum of each column of a table of choices, where an operator adds up its rows."""
    if func is not _aten.sum.dim_IntList or not vars(args[0]).get(_TABLE):
        return None
    table, dimensions = args[0], {one % args[0].dim() for one in args[1]}
    is_counted = not table.dtype.is_floating_point
    if not is_counted or dimensions != set(range(table.dim() - 1)) or any(args[2:3]):
        return None
    return _evenly(ceil(vars(table)[_SHARE] * table.numel()), table.shape[-1])


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
    return _evenly(choices.numel(), among)


def _evenly(count: int, among: int) -> list[int]:
    each, more = divmod(count, among)
    return [each + (one < more) for one in range(among)]


def _length(tensor: torch.Tensor, dimension: int) -> int:
    return tensor.shape[dimension] if tensor.dim() else 1


def _note(tensor: torch.Tensor, name: str, value: Any) -> None:
    if value is not None:
        setattr(tensor, name, value)
