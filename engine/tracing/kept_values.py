"""Fake tensors that keep their values, where these are few and not real numbers of a model.

What a step does may depend on its masks, on the sizes of its images, on where its tokens stand.
Those are small: they are computed for real beside the fake tensors, as far as they follow from what
is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from ..versions.patches import patched

_aten = torch.ops.aten

MAX_KNOWN = 2**20
"""Limit of whole numbers in a tensor up to which they are computed for real: enough for the token
ids and masks of the batches that are traced."""

MAX_KNOWN_REALS = 2**8
"""The same limit for fractions: enough for the widths of a network's layers, or their rates."""

_SERIES = {
    _aten.arange.default,
    _aten.arange.start,
    _aten.arange.start_step,
    _aten.linspace.default,
}
_DIAGONALS = {_aten.eye.default, _aten.eye.m}
_WRITTEN_DOWN = {
    *_SERIES,
    *_DIAGONALS,
    _aten.full.default,
    _aten.ones.default,
    _aten.zeros.default,
    _aten.scalar_tensor.default,
}
_PLAIN = {bool, int, float, str, type(None), torch.dtype, torch.device, torch.memory_format}
_UNFILLED = {
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
    _aten.empty_like.default,
}
"""Operators that leave open what is in their result, though they are given a tensor."""
_CHOOSING = {_aten.index.Tensor, _aten.masked_select.default}
_COPYING = _aten.copy_.default
_MASKS = (torch.bool, torch.uint8)


class KeptValues(FakeTensorMode):
    """A mode for fake tensors that computes what is small for real, too."""

    keeps_whole_reals = True
    """Whether real numbers that are written down are kept: masks are, but parameters change."""
    keeps_copies = False
    """Whether whole numbers that are copied into a tensor without values are kept there."""
    _runs_inside = False
    """Whether an operator runs that a fake kernel uses: those make room, and fill nothing."""

    def __enter__(self) -> Self:
        """Become the active mode; as inherited, but for CUDA's guard.

        A build with CUDA would pretend to have eight GPUs from then on, so that tensors can be
        there, and autograd would start threads for them (:mod:`.hidden_gpus`). Ours are on the CPU.
        """
        with patched(
            torch._C,
            "_ensureCUDADeviceGuardSet",
            lambda: None,
            why="a build with CUDA would pretend to have eight GPUs from then on",
            is_missing_in_some=True,
        ):
            entered: Self = super().__enter__()
            return entered

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, so PyTorch's guard against that is not needed."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator; as inherited, but for that guard."""
        return self.dispatch(func, types, args, kwargs)

    def may_turn_const(self, t: torch.Tensor) -> bool:
        """Whether a real tensor is small enough to be computed with."""
        if type(t) is not torch.Tensor or t.device.type != "cpu" or t.numel() > MAX_KNOWN:
            return False
        return not _has_fractions(t) or t.numel() <= MAX_KNOWN_REALS

    def given(self, real: torch.Tensor) -> FakeTensor:
        """A fake tensor in the place of a real one; it keeps the values unless they are reals."""
        keeps = not real.is_floating_point() and self.may_turn_const(real)
        fake: FakeTensor = self.fake_tensor_converter.from_real_tensor(
            self, real, make_constant=keeps
        )
        return fake

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator on fake tensors, and on the values that are kept."""
        kwargs = kwargs or {}
        if func in _WRITTEN_DOWN and (known := self._written(func, args, kwargs)) is not None:
            return known
        if func in _CHOOSING and (chosen := _chosen(func, *args)) is not None:
            return chosen
        of = args[0] if args else None
        if func.is_view and isinstance(of, FakeTensor) and of.constant is not None:
            return self._view(func, types, of, args, kwargs)
        if _spreads(func, args) or (self._runs_inside and func in _UNFILLED):
            return self._without_values(func, types, args, kwargs)
        inside, self._runs_inside = self._runs_inside, True
        try:
            output = super().dispatch(func, types, args, kwargs)
        finally:
            self._runs_inside = inside
        if func is _COPYING and self.keeps_copies:
            self._copied(*args[:2])
        return output

    def _copied(self, target: Any, source: Any) -> None:
        """Keep whole numbers that were copied into a tensor without values, which is no view."""
        if not _is_known(source) or not isinstance(target, FakeTensor) or _is_known(target):
            return
        if target.dtype.is_floating_point or target.dtype.is_complex or target._is_view():
            return
        with _disable_current_modes():
            kept = torch.empty(target.shape, dtype=target.dtype).copy_(source.constant)
        if self.may_turn_const(kept):
            target.constant = kept
            self.fake_tensor_converter.add_constant_storage_mapping(target)

    def _without_values(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run the operator on fake tensors alone, of which some are kept with values."""
        kept = [(one, one.constant) for one in args if _is_known(one)]
        for one, _ in kept:
            one.constant = None
        try:
            return super().dispatch(func, types, args, kwargs)
        finally:
            for one, values in kept:
                one.constant = values

    def _prep_args_for_hash(self, result: list[Any], args: Any, *more: Any) -> None:
        """Add the inputs that a result depends on, by which PyTorch finds it again.

        PyTorch's own version reads 15 facts of each tensor, which takes a fifth of a trace. For
        dense tensors in this mode, those here decide the others.
        """
        result += (type(args), len(args))
        for value in args.items() if isinstance(args, Mapping) else args:
            if isinstance(value, FakeTensor) and value.constant is None and self._owns(value):
                result += (
                    value.dtype,
                    value.fake_device,
                    value.shape,
                    value.stride(),
                    value.storage_offset(),
                    value.untyped_storage().nbytes(),
                    value.requires_grad,
                    value.is_inference(),
                    value.is_conj(),
                    value.is_neg(),
                )
            elif isinstance(value, list | tuple):
                self._prep_args_for_hash(result, value, *more)
            elif type(value) in _PLAIN:
                result += (type(value), value)
            else:
                super()._prep_args_for_hash(result, [value], *more)

    def _owns(self, tensor: FakeTensor) -> bool:
        return tensor.fake_mode is self and tensor.layout is torch.strided

    def _written(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A tensor that code writes down, with its values; ``None`` where they are not kept."""
        if kwargs.get("pin_memory") or str(kwargs.get("device") or "cpu") != "cpu":
            return None
        if not _few(func, args):
            return None
        with _disable_current_modes():
            real = func(*args, **kwargs)
        patterned = func in _SERIES or func in _DIAGONALS  # hardly a parameter begins so
        if real.is_floating_point() and not patterned and not self.keeps_whole_reals:
            return None
        if not self.may_turn_const(real):
            return None
        return self.fake_tensor_converter.from_real_tensor(self, real, make_constant=True)

    def _view(
        self,
        func: Any,
        types: Sequence[type],
        of: FakeTensor,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """A view, which shares the memory of the values too."""
        values = of.constant
        of.constant = None  # else the view would be a tensor of its own
        try:
            viewed = super().dispatch(func, types, args, kwargs)
        finally:
            of.constant = values
        with _disable_current_modes():
            kept = func(values, *args[1:], **kwargs)
        for view, constant in zip(_list(viewed), _list(kept), strict=True):
            view.constant = constant
            self.fake_tensor_converter.add_constant_storage_mapping(view)
        return viewed


def _has_fractions(real: torch.Tensor) -> bool:
    """Whether there are others than whole numbers; masks are often real numbers, but whole."""
    if real.is_complex():
        return True
    if not real.is_floating_point():
        return False
    with _disable_current_modes():
        return not bool((real == real.round()).all())


def _few(func: Any, args: Sequence[Any]) -> bool:
    """Whether a tensor that is written down as numbers can be made for real."""
    if func._overloadpacket is _aten.arange:
        numbers = [abs(number) for number in args if isinstance(number, int | float)]
        return bool(numbers) and max(numbers) <= MAX_KNOWN
    if func is _aten.scalar_tensor.default:
        return True
    if func is _aten.linspace.default:
        return int(args[2]) <= MAX_KNOWN
    if func in _DIAGONALS:
        return int(args[0]) * int(args[-1]) <= MAX_KNOWN
    return torch.Size(args[0]).numel() <= MAX_KNOWN


def _chosen(func: Any, tensor: torch.Tensor, by: Any) -> torch.Tensor | None:
    """The numbers of a tensor that masks choose; ``None`` unless the tensor alone is not known."""
    if isinstance(tensor, FakeTensor) and tensor.constant is not None:
        return None
    if func is _aten.masked_select.default:
        if not _is_known(by):
            return None
        with _disable_current_modes():
            shape = torch.broadcast_shapes(tensor.shape, by.shape)
            count = int(by.constant.expand(shape).sum())
        return tensor.new_empty(count)
    masks = [index for index in by if index is not None and index.dtype in _MASKS]
    if not masks or not all(map(_is_known, masks)):
        return None
    places = [place for place, index in enumerate(by) if index is not None]
    if len(places) == 1:
        return _chosen_by(masks[0], tensor, places[0])
    rows: list[torch.Tensor | None] = []
    for index in by:
        is_mask = index is not None and index.dtype in _MASKS
        rows += index.nonzero().unbind(1) if is_mask else [index]
    indexed: torch.Tensor = _aten.index.Tensor(tensor, rows)
    return indexed


def _chosen_by(mask: Any, tensor: torch.Tensor, place: int) -> torch.Tensor:
    """The numbers of a tensor that one mask chooses, behind ``place`` dimensions.

    The mask is only counted: one for each number of an embedding is large, though it repeats the
    values of a small one.
    """
    with _disable_current_modes():
        count = int(mask.constant.count_nonzero())
    behind = tensor.shape[place + mask.dim() :]
    return tensor.new_empty([*tensor.shape[:place], count, *behind])


def _spreads(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operator makes more numbers of small tensors than are kept.

    The positions of 128k tokens, compared with each other, would take 16 GiB of the host.
    """
    if torch.Tag.pointwise not in func.tags or func._schema.is_mutable:
        return False
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    if len(tensors) < 2 or not all(map(_is_known, tensors)):
        return False
    spread: torch.Size = torch.broadcast_shapes(*(one.shape for one in tensors))
    return spread.numel() > MAX_KNOWN


def _is_known(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.constant is not None


def _list(output: Any) -> Sequence[Any]:
    return output if isinstance(output, list | tuple) else [output]
