"""Random weights that are drawn on the device, and not by one core of the host.

That core took a minute for a billion numbers, most of a trial. The device draws them into the
memory that the weights have there anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..parallel.group_recorder import own_part
from ..tracing.operations import tensors_in
from ..tracing.operator_mode import OperatorMode

_aten = torch.ops.aten

_BEGIN = {_aten.normal_, _aten.uniform_}
"""Operators that fill a tensor with random numbers, whatever was in it."""
_GO_ON = {_aten.erfinv_, _aten.mul_, _aten.add_, _aten.clamp_, _aten.zero_, _aten.fill_}
"""Operators that initialisers apply to random numbers: to cut a distribution off, empty the
padding's row."""
_COPY = {_aten._to_copy.default, _aten.clone.default}
_READ_NO_VALUES = {
    _aten.empty_like,
    _aten.zeros_like,
    _aten.ones_like,
    _aten.full_like,
    _aten.new_empty,
    _aten.new_zeros,
    _aten.new_ones,
    _aten.new_full,
}

_BLOCK = 65_521
"""Count of numbers that are drawn on the host, and repeated. A prime, so that a matrix has no two
equal rows: equal rows of a router would send tokens to the same experts."""

_WAITING = "_filled_later"


@dataclass(frozen=True)
class _Filling:
    """An operator that was put off.

    Attributes:
        func: It writes its first argument in place.
        args, kwargs: The others.
        part: Size, strides and offset of what it writes; ``None`` for all of the storage.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    part: tuple[Sequence[int], Sequence[int], int] | None

    def carry_out(self, whole: torch.Tensor) -> None:
        """Write the part of a storage that is given whole, in one dimension."""
        target = whole if self.part is None else whole.as_strided(*self.part)
        self.func(target, *self.args, **self.kwargs)


class DrawingLater(OperatorMode):
    """Puts off filling the host's tensors with random numbers, while it is the active mode.

    A tensor that was to be filled stays as it is, and its storage remembers how. What moves it to
    a device then makes an empty tensor there and fills it in place: the device's allocator gets the
    requests that it gets for a copy, in the same order. What reads the tensor on the host before
    that has it filled first, so that nothing built from its values differs.

    After the context, :func:`draw` fills what has stayed on the host.
    """

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Put an operator off, or run it, its operands filled."""
        packet = func._overloadpacket
        if packet in _BEGIN | _GO_ON and _put_off(func, args, kwargs):
            return args[0]
        if func in _COPY and (made := _copy(args[0], kwargs)) is not None:
            return made
        if packet not in _READ_NO_VALUES and not _is_view(func):
            for tensor in tensors_in((args, kwargs)):
                _fill(tensor)
        return func(*args, **kwargs)


def draw(model: torch.nn.Module) -> None:
    """Fill those weights of a model that wait for it on the host.

    Args:
        model: Built under :class:`DrawingLater`.
    """
    with torch.no_grad():
        for tensor in chain(model.parameters(), model.buffers()):
            _fill(own_part(tensor))


def _waiting(tensor: torch.Tensor) -> list[_Filling]:
    """Fillings that a tensor's storage waits for; empty if it has its values."""
    if not _is_plain(tensor):
        return []
    found: list[_Filling] = getattr(tensor.untyped_storage(), _WAITING, [])
    return found


def _put_off(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Let a tensor's storage remember an operator; whether it is one that can wait."""
    tensor, *others = args
    if not _is_plain(tensor) or tensor.device.type != "cpu" or tensor.numel() == 0:
        return False
    whole = _is_whole(tensor)
    before = _waiting(tensor)
    if func._overloadpacket in _BEGIN and whole:
        before = []
    elif not before:
        return False
    part = None if whole else (tensor.size(), tensor.stride(), tensor.storage_offset())
    filling = _Filling(func, tuple(others), kwargs, part)
    setattr(tensor.untyped_storage(), _WAITING, [*before, filling])
    return True


def _copy(tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor | None:
    """A copy that waits for the same, or has been filled so where it is not on the host.

    Returns:
        ``None`` where the tensor waits for nothing, or its copy would lie in memory in another way.
    """
    waiting = _waiting(tensor)
    if not waiting or not _is_whole(tensor):
        return None
    in_parts = any(filling.part is not None for filling in waiting)
    options = {name: value for name, value in options.items() if name != "non_blocking"}
    made = torch.empty_like(tensor, **options)
    if in_parts and made.stride() != tensor.stride():
        return None
    setattr(made.untyped_storage(), _WAITING, waiting)
    if made.device.type != "cpu":
        _fill(made)
    return made


def _fill(tensor: torch.Tensor) -> None:
    """Do with a tensor's storage what was put off."""
    waiting = _waiting(tensor)
    if not waiting:
        return
    storage = tensor.untyped_storage()
    delattr(storage, _WAITING)
    whole = tensor.detach().as_strided((storage.nbytes() // tensor.itemsize,), (1,), 0)
    if whole.device.type == "cpu":
        everywhere = list(takewhile(lambda filling: filling.part is None, waiting))
        _repeat_block(whole, everywhere)
        waiting = waiting[len(everywhere) :]
    for filling in waiting:
        filling.carry_out(whole)


def _repeat_block(whole: torch.Tensor, fillings: Sequence[_Filling]) -> None:
    block = torch.empty(min(_BLOCK, whole.numel()), dtype=whole.dtype)
    for filling in fillings:
        filling.carry_out(block)
    count, left = divmod(whole.numel(), block.numel())
    whole[: whole.numel() - left].view(count, -1).copy_(block)
    whole[whole.numel() - left :].copy_(block[:left])


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a storage of its own: the parts of others are filled by themselves."""
    wraps: bool = is_traceable_wrapper_subclass(tensor)
    return tensor.layout is torch.strided and not wraps


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor takes all of its storage."""
    return tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()


def _is_view(func: Any) -> bool:
    aliases = [result.alias_info for result in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)
