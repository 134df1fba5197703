"""Fake tensors that remember which values they hold, as far as that is simple and sure.

Training asks its masks for values: transformers drops a mask of ones, and then another attention
kernel runs. A fake tensor has no values, so :class:`KnownValues` keeps the few that tell: those of
filled tensors, of what was written into them, and of comparisons with them.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from .operations import tensors_in

Scalar = bool | int | float
Values = frozenset[Scalar]


@dataclass(frozen=True)
class Held:
    """What a tensor may hold.

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
_UNSCALING = _aten._amp_foreach_non_finite_check_and_unscale_.default
_SHRUNK = {  # to a number in place, on every device (native/Loss.cpp, cuda/Loss.cu)
    _aten.binary_cross_entropy.default,
    _aten.mse_loss.default,
    _aten.smooth_l1_loss.default,
    _aten.soft_margin_loss.default,
}
_BATCH_NORM = _aten.native_batch_norm.default
_ONEDNN_LAYER = _aten.mkldnn_rnn_layer.default
_LAYER_NORM_BACKWARD = _aten.native_layer_norm_backward.default
_GROUPED_PRODUCT = _aten._grouped_mm.default if hasattr(_aten, "_grouped_mm") else None
_COPIED = (_aten.clone.default, _aten._to_copy.default)
_NEGATED = (_aten.logical_not.default, _aten.bitwise_not.default)


class KnownValues(FakeTensorMode):
    """A mode for fake tensors that answers for their values where it knows them.

    It also multiplies experts as a group, lays out the gradients of layer norm, keeps the
    statistics of batch norm and reduces losses as real kernels do.
    """

    def __init__(self) -> None:
        super().__init__()
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
                return _exactly(*tensor.constant.flatten().tolist())
        storage = tensor.untyped_storage()
        held = self._held.get(storage._cdata)
        if held is None or len(held.possible) == 1 or _is_whole(tensor, storage):
            return held
        return Held(held.possible, frozenset())

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator on fake tensors, and follow the values."""
        kwargs = kwargs or {}
        if func is _ASKING:
            asked = self.values(args[0])
            if asked is not None and len(asked) == 1:
                return next(iter(asked))
        if func is _GROUPED_PRODUCT:
            return _grouped_product(*args, **kwargs)
        output: Any = super().dispatch(func, types, args, kwargs)
        if func is _LAYER_NORM_BACKWARD:
            output = (_contiguous(output[0]), *output[1:])
        elif func is _BATCH_NORM:
            output = (output[0], *_statistics(output[1:], args[1:5]))
        elif func is _ONEDNN_LAYER and torch.is_grad_enabled():
            output = (*output[:3], output[3].new_empty(_onednn_workspace(args, kwargs)))
        elif func in _SHRUNK and output.dim() < args[0].dim():
            output = torch.empty_like(args[0]).resize_(())  # the memory of the whole stays
        if func in _FILLED:
            self._know(output, _exactly(_FILLED[func](*args)))
        elif self._held:
            self._follow(func, args, kwargs, output)
        return output

    def _follow(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        if func._schema.is_mutable:
            self._write(func, args, kwargs)
            return
        held = self._in(args[0]) if args and isinstance(args[0], torch.Tensor) else None
        if held is None:
            return
        if func in _COMPARED:
            self._know(output, held.mapped(lambda value: _COMPARED[func](value, args[1])))
        elif func in _NEGATED and output.dtype is torch.bool:
            self._know(output, held.mapped(operator.not_))
        elif func in _COPIED and held.possible <= {0, 1}:  # which every number format has
            self._know(output, held)
        elif func is _aten.all.default:
            if not all(held.sure) or all(held.possible):
                self._know(output, _exactly(all(held.sure)))
        elif func is _aten.any.default and (any(held.sure) or not any(held.possible)):
            self._know(output, _exactly(any(held.sure)))

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


def _is_whole(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    """Whether a tensor shows all of its storage."""
    return tensor.numel() * tensor.element_size() >= storage.nbytes()


def _statistics(
    found: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor | None]
) -> Iterator[torch.Tensor]:
    """Batch norm's mean and deviation of each channel as the real kernels keep them.

    They are in fp32 where its parameters are (``is_mixed_type`` in native/batch_norm.h); the fake
    ones are in the format of what comes in.
    """
    formats = {parameter.dtype for parameter in parameters if parameter is not None}
    for statistic in found:
        yield statistic.float() if torch.float32 in formats else statistic


def _onednn_workspace(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """What oneDNN keeps of a recurrent layer for backward, in bytes: only a real run tells."""

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.zeros(value.shape, dtype=value.dtype, requires_grad=True)

    with _disable_current_modes(), torch.enable_grad():
        found = _ONEDNN_LAYER(*map(real, args), **{name: real(kwargs[name]) for name in kwargs})
    return 0 if found[3] is None else int(found[3].numel())


def _grouped_product(
    left: torch.Tensor,
    right: torch.Tensor,
    offsets: torch.Tensor,
    bias: None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The products of a mixture of experts in one tensor, as real kernels lay them out.

    Its size does not depend on how many tokens each expert gets. The fake kernel takes bf16 only
    (torch 2.13), the real ones fp32 too.
    """
    size = [left.shape[-2], right.shape[-1]]
    if left.dim() == right.dim():  # the gradients of the experts' weights
        size = [offsets.shape[0], *size]
    return left.new_empty(size, dtype=out_dtype)


def _contiguous(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Layer norm's gradient as the real kernels lay it out.

    It is contiguous on every device (``native_layer_norm_backward`` in native/layer_norm.cpp and
    cuda/layer_norm_kernel.cu). The fake one has the strides of what comes in; after pooling that is
    a transposed view, which the next matrix product would copy.
    """
    return gradient if gradient is None else gradient.contiguous()


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
