"""Fake tensors that remember which values occur in them, as far as that is simple and sure.

Training reads values of its masks: transformers drops a mask of ones, and then another attention
kernel runs. A fake tensor has no values, so :class:`KnownValues` keeps the few that decide: those
of filled tensors, of what was written into them, and of comparisons with them. Those may be large;
of small tensors, :mod:`.kept_values` keeps every value. Real numbers that are given, such as an
image's, are taken to differ from each number that code compares them with.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from .fake_kernels import INSTEAD, as_real_kernels
from .kept_values import MAX_KNOWN, KeptValues
from .operations import tensors_in

Scalar = bool | int | float
Values = frozenset[Scalar]


@dataclass(frozen=True)
class Held:
    """Values that a tensor may hold.

    Attributes:
        possible: No other value occurs in it.
        sure: Each of these does.
    """

    possible: Values
    sure: Values

    def mapped(self, function: Callable[[Scalar], Scalar]) -> Held:
        return Held(frozenset(map(function, self.possible)), frozenset(map(function, self.sure)))


def _exactly(*values: Scalar) -> Held:
    return Held(frozenset(values), frozenset(values))


ANY_REAL = float("nan")
"""Stands for real numbers that are given: like NaN, they equal no number in the code."""

_aten = torch.ops.aten
_ASKING = _aten._local_scalar_dense.default

_FILLED: dict[Any, Callable[..., Scalar]] = {
    _aten.zeros.default: lambda size: 0,
    _aten.ones.default: lambda size: 1,
    _aten.full.default: lambda size, value: value,
    _aten.zeros_like.default: lambda like: 0,
    _aten.ones_like.default: lambda like: 1,
    _aten.full_like.default: lambda like, value: value,
    _aten.new_zeros.default: lambda like, size: 0,
    _aten.new_ones.default: lambda like, size: 1,
    _aten.new_full.default: lambda like, size, value: value,
    # Training goes well: nothing overflows.
    _aten.isinf.default: lambda tensor: False,
    _aten.isnan.default: lambda tensor: False,
}
_COMPARED: dict[Any, Callable[[Any, Any], bool]] = {
    getattr(_aten, name).Scalar: getattr(operator, name)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_ORDERED = {getattr(_aten, name).Tensor for name in ("lt", "le", "gt", "ge")}
_CHECKING = _aten._is_all_true.default
_UNSCALING = _aten._amp_foreach_non_finite_check_and_unscale_.default
_COPIED = (_aten.clone.default, _aten._to_copy.default)
_QUANTIFYING: dict[Any, Callable[..., bool]] = {_aten.all.default: all, _aten.any.default: any}
_SUMMED = (_aten.sum.default, _aten.sum.dim_IntList)
_TRIANGULAR = {getattr(_aten, name).default for name in ("tril", "triu", "tril_", "triu_")}
_SAME_FOR_ANY_REAL = (_aten.eq.Scalar, _aten.ne.Scalar, _aten.index.Tensor, *_COPIED)
_NEGATED = (_aten.logical_not.default, _aten.bitwise_not.default)
_FOLLOWED = {
    *_COMPARED,
    *_QUANTIFYING,
    *_NEGATED,
    *_COPIED,
    _aten.mul.Tensor,
    _aten.index.Tensor,
}


class KnownValues(KeptValues):
    """A mode for fake tensors that answers for their values where it knows them.

    Its kernels' results are laid out as real ones (:mod:`.fake_kernels`).

    Args:
        checks_pass: Whether what a model demands holds, of all of its real numbers, compared with
            each other (boxes end after they begin), or by ``torch._check_tensor_all``.

    Attributes:
        demands_hold: Whether what code demands by ``torch._is_all_true`` holds. Nothing asks so but
            checks, such as those of ``torch.distributions``, which training passes.
        on_cuda: Whether kernels are CUDA's, or the CPU's.
    """

    demands_hold = False
    on_cuda = False

    def __init__(self, *, checks_pass: bool = False) -> None:
        super().__init__()
        self._checks_pass = checks_pass
        # By address of the storage; what a view shows of several values is not known.
        self._held: dict[int, Held] = {}
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def values(self, tensor: torch.Tensor) -> Values | None:
        """The different values in a fake tensor; ``None`` where they are not known."""
        held = self._in(tensor)
        return held.sure if held is not None and held.sure == held.possible else None

    def _in(self, tensor: torch.Tensor) -> Held | None:
        if isinstance(tensor, FakeTensor) and tensor.constant is not None:
            with _disable_current_modes():
                return _exactly(*tensor.constant.unique().tolist())
        storage = tensor.untyped_storage()
        held = self._held.get(storage._cdata)
        if held is None or len(held.possible) == 1 or _is_whole(tensor, storage):
            return held
        return Held(held.possible, frozenset())

    def given(self, real: torch.Tensor) -> FakeTensor:
        """A fake tensor in the place of a real one; of real numbers it has no values."""
        fake: FakeTensor = super().given(real)
        if real.is_floating_point():
            self._know(fake, Held(frozenset({ANY_REAL}), frozenset()))
        elif fake.constant is None and (value := _one_value(real)) is not None:
            self._know(fake, _exactly(value))
        return fake

    def say(self, tensor: torch.Tensor, value: Scalar) -> None:
        """Let every number of a fake tensor have that value from now on."""
        self._know(tensor, _exactly(value))

    def _only_value(self, tensor: torch.Tensor) -> Scalar | None:
        """The value of every number of a large tensor; ``None`` where that is not known."""
        held = self._held.get(tensor.untyped_storage()._cdata)
        if held is None or len(held.possible) > 1 or ANY_REAL in held.possible:
            return None
        return next(iter(held.possible))

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator on fake tensors, and follow the values."""
        kwargs = kwargs or {}
        if func is _ASKING and len(asked := self.values(args[0]) or ()) == 1:
            return next(iter(asked))
        if func in INSTEAD:
            return INSTEAD[func](*args, **kwargs)
        output: Any = super().dispatch(func, types, args, kwargs)
        if output is NotImplemented:  # another class of tensors answers, with fake ones of its own
            return output
        if func in _SUMMED and (value := self._only_value(args[0])) is not None:
            func, args = _aten.full.default, _sums(value, args[0], output)
            output = super().dispatch(func, types, args, {"dtype": output.dtype})
        output = as_real_kernels(func, args, kwargs, output, on_cuda=self.on_cuda)
        if func in _FILLED:
            self._know(output, _exactly(_FILLED[func](*args)))
        elif _asks_whether_finite(func, args):
            self._know(output, _exactly(True))
        elif self._checks_pass and func in _ORDERED and args[0].is_floating_point():
            self._know(output, Held(frozenset({True}), frozenset()))
        elif func is _CHECKING and (self._checks_pass or self.demands_hold):
            self._know(output, _exactly(True))
        elif self._held:
            self._follow(func, args, kwargs, output)
        return output

    def _keep_triangle(self, func: Any, args: Sequence[Any], output: Any) -> None:
        """Keep the values of a triangle of one value, such as a causal mask."""
        value = self._only_value(args[0])
        if value is None or output.constant is not None or output.numel() > MAX_KNOWN:
            return
        if not _is_whole(output, output.untyped_storage()):
            return  # written in place, and its base has other values too
        with _disable_current_modes():
            filled = torch.full(args[0].shape, value, dtype=args[0].dtype)
            output.constant = func(filled, *args[1:])
        self.fake_tensor_converter.add_constant_storage_mapping(output)

    def _follow(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        if func in _TRIANGULAR:
            self._keep_triangle(func, args, output)
        if func._schema.is_mutable:
            self._write(func, args, kwargs)
            return
        if func not in _FOLLOWED or getattr(output, "constant", None) is not None:
            return  # of what is kept, every value is known
        held = self._in(args[0]) if args and isinstance(args[0], torch.Tensor) else None
        if held is None or (ANY_REAL in held.possible and func not in _SAME_FOR_ANY_REAL):
            return
        if func in _COMPARED:
            self._know(output, held.mapped(lambda value: _COMPARED[func](value, args[1])))
        elif func in _QUANTIFYING:
            self._quantify(func, held, output)
        elif func is _aten.mul.Tensor and all(map(self._is_true, args)):
            self._know(output, held)
        elif func in _NEGATED and output.dtype is torch.bool:
            self._know(output, held.mapped(operator.not_))
        elif _copies(func, held):
            self._know(output, held)

    def _is_true(self, factor: Any) -> bool:
        held = self._in(factor) if isinstance(factor, torch.Tensor) else None
        return held is not None and held.possible == {True}

    def _quantify(self, func: Any, held: Held, output: torch.Tensor) -> None:
        """Record whether all values are true, or any is, where these values decide."""
        answers = {_QUANTIFYING[func](held.sure), _QUANTIFYING[func](held.possible)}
        if len(answers) == 1:
            self._know(output, _exactly(*answers))

    def _write(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        written = None
        if func in (_aten.copy_.default, _aten.fill_.Tensor):
            written = self._in(args[1])
        elif func is _aten.fill_.Scalar:
            written = _exactly(args[1])
        elif func is _aten.zero_.default:
            written = _exactly(0)
        if written is None:
            for name in _written(func):
                target = args[name] if isinstance(name, int) else kwargs.get(name)
                for tensor in tensors_in(target):
                    self._held.pop(tensor.untyped_storage()._cdata, None)
            return
        target = args[0]
        storage = target.untyped_storage()
        before = self._held.get(storage._cdata)
        if _is_whole(target, storage):
            self._know(target, written)
        elif before is not None:
            # Around the part that is written, one value is left as it was; of several, any may go.
            left = before.sure if len(before.possible) == 1 else frozenset()
            self._know(target, Held(before.possible | written.possible, left | written.sure))

    def _know(self, tensor: torch.Tensor, held: Held) -> None:
        storage = tensor.untyped_storage()
        address = storage._cdata
        self._held[address] = held
        self._storages[address] = weakref.ref(storage, lambda _: self._died(address))

    def _died(self, address: int) -> None:
        self._held.pop(address, None)
        self._storages.pop(address, None)


def _asks_whether_finite(func: Any, args: Sequence[Any]) -> bool:
    """Whether this is a part of ``torch.isfinite``: training goes well, and nothing overflows."""
    if func is _aten.ne.Scalar:
        return bool(args[1] == math.inf)
    return func is _aten.eq.Tensor and args[0] is args[1]


def _is_whole(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    """Whether a tensor shows all of its storage."""
    return tensor.numel() * tensor.element_size() >= storage.nbytes()


def _one_value(real: torch.Tensor) -> Scalar | None:
    """The value that every number of a real tensor has; ``None`` where they differ."""
    with _disable_current_modes():
        first: Scalar = real.flatten()[0].item()
        return first if bool((real == first).all()) else None


def _copies(func: Any, held: Held) -> bool:
    """Whether what an operator returns holds the same values."""
    if func is _aten.index.Tensor:
        return len(held.possible) == 1
    return func in _COPIED and held.possible <= {0, 1, ANY_REAL}  # which every number format has


def _sums(value: Scalar, summed: torch.Tensor, sums: torch.Tensor) -> tuple[list[int], Scalar]:
    """The shape and the value of sums of one value."""
    return list(sums.shape), value * summed.numel() // max(sums.numel(), 1)


@cache
def _written(func: Any) -> tuple[int | str, ...]:
    """The arguments that an operator writes to: positions, or names of those given by name."""
    if func is _UNSCALING:
        return (0,)  # to found_inf only where a gradient overflows, and training goes well
    return tuple(
        argument.name if argument.kwarg_only else index
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
