"""Number of elements that a mask chooses, where a script sets it at indices that are all different.

``mask.scatter_(0, torch.randperm(n)[:k], True)`` chooses k elements, whichever these are. So do the
indices of ``topk``, those that are drawn without replacement, and such a choice among indices that
were all different before, as detectors draw from their positive boxes. What is selected by such a
mask has a size that is known, also of several masks joined, one after another or by ``|``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...tracing.known_values import KnownValues

_aten = torch.ops.aten

_DISTINCT, _CHOSEN = "_all_different", "_chosen_elements"

_FIRST = {_aten.randperm.default, _aten.randperm.generator}
_SECOND = {_aten.topk.default, _aten.sort.default, _aten.sort.stable}
"""Operators that return indices that are all different, and those that do so in second place."""

_SETTING: dict[Any, tuple[int, int]] = {
    _aten.scatter_.value: (2, 3),
    _aten.scatter_.src: (2, 3),
    _aten.scatter.value: (2, 3),
    _aten.scatter.src: (2, 3),
    _aten.index_fill_.int_Scalar: (2, 3),
    _aten.index_fill_.int_Tensor: (2, 3),
    _aten.index_put_.default: (1, 2),
    _aten.index_put.default: (1, 2),
}
"""Operators that set elements at indices: where these and the elements are in their arguments."""

_COPIES = {_aten._to_copy.default, _aten.clone.default}


def follow_indices(
    func: Any, args: Sequence[Any], output: Any, chosen_now: int | None = None
) -> None:
    """Record what the result of an operator says about indices and masks.

    Args:
        func: The operator.
        args: Its arguments.
        output: Its result.
        chosen_now: As :func:`set_at_indices` said before it ran.
    """
    given: Any = args[0] if args else None
    if chosen_now is not None:
        _note(output, _CHOSEN, chosen_now)
    elif func in _FIRST or (func is _aten.multinomial.default and not any(args[2:3])):
        _note(output, _DISTINCT, output.dim() == 1 or None)
    elif func in _SECOND and given.dim() == 1:
        _note(output[1], _DISTINCT, True)
    elif func in _FOLLOWED:
        _FOLLOWED[func](args, output)
    elif not isinstance(given, torch.Tensor) or not isinstance(output, torch.Tensor):
        return
    elif func.is_view or func in _COPIES:
        _note(output, _DISTINCT, vars(given).get(_DISTINCT))
        if output.numel() == given.numel():
            _note(output, _CHOSEN, chosen(given))
    elif (func is _aten.eq.Scalar and args[1] == 1) or (func is _aten.ne.Scalar and args[1] == 0):
        _note(output, _CHOSEN, chosen(given))
    elif func._schema.is_mutable:
        vars(given).pop(_CHOSEN, None)


def set_at_indices(fake: KnownValues, func: Any, args: Sequence[Any]) -> int | None:
    """Number of elements of a mask that an operator will set; ``None`` where that is not known.

    Args:
        fake: It knows values of tensors.
        func: The operator, which has not run yet.
        args: Its arguments.
    """
    if func not in _SETTING:
        return None
    at, with_value = _SETTING[func]
    indices, value = args[at], args[with_value]
    if isinstance(indices, list | tuple):
        (indices,) = indices if len(indices) == 1 else (None,)
    mask, one_row = args[0], args[0].dim() == 1 or args[0].shape[0] == 1
    if indices is None or not vars(indices).get(_DISTINCT) or not one_row:
        return None
    set_to = fake.values(value) if isinstance(value, torch.Tensor) else frozenset({value})
    return (
        indices.numel()
        if set_to == frozenset({1}) and fake.values(mask) == frozenset({0})
        else None
    )


def chosen(mask: torch.Tensor) -> int | None:
    """Number of elements that a mask chooses; ``None`` where that is not known."""
    found: int | None = vars(mask).get(_CHOSEN)
    return found


def all_different(indices: torch.Tensor) -> torch.Tensor:
    """The same indices, of which it is known that no two are equal."""
    _note(indices, _DISTINCT, True)
    return indices


def _follow_the_rest(args: Sequence[Any], output: torch.Tensor) -> None:
    mask = args[0]
    if mask.dtype is torch.bool and (count := chosen(mask)) is not None:
        _note(output, _CHOSEN, mask.numel() - count)


def _follow_joined(args: Sequence[Any], output: torch.Tensor) -> None:
    _note(output, _CHOSEN, _chosen_of_all(args[0]))


def _follow_either(args: Sequence[Any], output: torch.Tensor) -> None:
    if (most := _chosen_of_all(args)) is not None:
        _note(output, _CHOSEN, min(most, output.numel()))


def _follow_columns(args: Sequence[Any], output: Sequence[torch.Tensor]) -> None:
    if len(output) == 1:
        _note(output[0], _DISTINCT, vars(args[0]).get(_DISTINCT))


def _follow_drawn(args: Sequence[Any], output: torch.Tensor) -> None:
    if output.dim() == 1 and all(map(_are_different, (args[0], *args[1]))):
        all_different(output)


_FOLLOWED: dict[Any, Callable[[Sequence[Any], Any], None]] = {
    _aten.logical_not.default: _follow_the_rest,
    _aten.bitwise_not.default: _follow_the_rest,
    _aten.cat.default: _follow_joined,
    _aten.bitwise_or.Tensor: _follow_either,
    _aten.logical_or.default: _follow_either,
    _aten.unbind.int: _follow_columns,
    _aten.index.Tensor: _follow_drawn,
}
"""Operators that choose what masks or indices choose, in another way."""


def _are_different(indices: Any) -> bool:
    return isinstance(indices, torch.Tensor) and _DISTINCT in vars(indices)


def _chosen_of_all(masks: Sequence[Any]) -> int | None:
    """Number of elements that several masks choose, none of which another one does."""
    counts = [chosen(mask) if isinstance(mask, torch.Tensor) else None for mask in masks]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _note(tensor: torch.Tensor, name: str, value: Any) -> None:
    if value is not None:
        setattr(tensor, name, value)
