"""Values of fake tensors: what a script reads is answered, by what is known or a placeholder.

Known are the numbers that the script itself writes down, integers that it draws at random (each
trace draws its own), and what is computed from them as long as it is small. For all others, see
:mod:`.placeholders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)

from ..tracing.kept_values import MAX_KNOWN
from ..tracing.known_values import KnownValues
from ..tracing.operations import tensors_in
from ..tracing.whole_operators import arrives_whole, in_parts
from .placeholders import Values
from .routing import expected_counts, expected_true, follow_choices
from .sparse import refuse_sparse

_aten = torch.ops.aten


_NO_PASS = -1
"""Number of the backward pass that runs, where none does."""


class ScriptValues(KnownValues):
    """Fake tensors that keep their values where the script writes them down.

    Attributes:
        learned: PyTorch's number of the latest backward pass; -1 before the first.
        written: Addresses of storages that were written to since the first.
    """

    keeps_whole_reals = False  # a script's parameters are made among them
    demands_hold = True

    def __init__(self) -> None:
        super().__init__()
        self.learned = _NO_PASS
        self.written: set[int] = set()

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator, and see what it writes to outside a backward pass."""
        running = torch._C._current_graph_task_id()
        if running != _NO_PASS:
            self.learned = running
        elif self.learned != _NO_PASS and args and func._schema.is_mutable:
            self.written |= {tensor.untyped_storage()._cdata for tensor in tensors_in(args[0])}
        return super().dispatch(func, types, args, kwargs)

    @property
    def avoid_device_init(self) -> bool:
        """True: a GPU that is really there is left alone."""
        return True

    @avoid_device_init.setter
    def avoid_device_init(self, value: bool) -> None:  # PyTorch 2.10 and older set it
        pass


class ValuesMode(TorchDispatchMode):
    """Supplies what fake tensors cannot, while it is the active dispatch mode.

    Args:
        values: The values supplied; they record which lines read them.
        fake: The mode below it.
    """

    def __init__(self, values: Values, fake: KnownValues) -> None:
        super().__init__()
        self._values = values
        self._fake = fake
        self._beside_real = False
        self._random = torch.Generator().manual_seed(values.placeholders.integer)

    @contextmanager
    def beside_real(self) -> Iterator[None]:
        """Be the active mode where real tensors are made: these are left alone.

        What is computed from both is fake.
        """
        allowed = self._fake.allow_non_fake_inputs
        self._beside_real = self._fake.allow_non_fake_inputs = True
        try:
            with self:
                yield
        finally:
            self._beside_real, self._fake.allow_non_fake_inputs = False, allowed

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operator; where that takes values, answer in its place."""
        kwargs = kwargs or {}
        self._values.operators += 1
        if self._beside_real and not any(
            isinstance(tensor, FakeTensor) for tensor in tensors_in((args, kwargs))
        ):
            return func(*args, **kwargs)
        refuse_sparse(func, tensors_in((args, kwargs)))
        if arrives_whole(func):
            return in_parts(self, func, args, kwargs)
        if func in _DRAWN and (drawn := self._draw(func, args, kwargs)) is not None:
            return drawn
        try:
            output = func(*args, **kwargs)
        except DataDependentOutputException:
            if func is _aten._local_scalar_dense.default:
                return self._values.answer(args[0].dtype)
            if func in _YES_OR_NO:
                return self._values.answer(torch.bool)
            raise
        except DynamicOutputShapeException:
            selected = self._select(func, args, kwargs)
            if selected is None:
                raise
            return selected
        follow_choices(func, args, output)
        if func is _aten.any.default and expected_true(args[0]):
            self._fake.say(output, True)  # each choice is made by some
        return output

    def _draw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Random integers with their values; ``None`` where they are too many, or no integers."""
        draw, elements = _DRAWN[func](args)
        if elements > MAX_KNOWN:
            return None
        self._values.drawn = True
        with _disable_current_modes():
            dtype = kwargs.get("dtype") or torch.int64
            real = draw(dtype=dtype, generator=self._random)
        return self._with_values(real)

    def _select(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What values would select; ``None`` where nobody knows how much that can be."""
        if func is _aten.bincount.default and (counts := self._count(args, kwargs)) is not None:
            return counts
        if func not in _LARGEST:
            return None
        found = _Selecting()
        selected = _LARGEST[func](found, *args, **kwargs)
        self._values.selected(evenly=found.evenly)
        return selected

    def _count(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Result of ``bincount``; ``None`` where its length depends on values."""
        counts = _counts(*args, **kwargs)
        if counts is None or counts.dtype.is_floating_point:  # sums of weights
            return counts
        expected = expected_counts(args[0], len(counts))
        if expected is None:
            return counts
        self._values.selected(evenly=True)
        with _disable_current_modes():
            real = torch.tensor(expected)
        known = self._with_values(real)
        return counts if known is None else known

    def _with_values(self, real: torch.Tensor) -> Any:
        """A fake tensor that keeps the values of a real one; ``None`` if they are too many."""
        if not self._fake.may_turn_const(real):
            return None
        return self._fake.fake_tensor_converter.from_real_tensor(
            self._fake, real, make_constant=True
        )


_Draw = Callable[..., torch.Tensor]


def _below(high: int, size: Sequence[int]) -> tuple[_Draw, int]:
    return _between(0, high, size)


def _between(low: int, high: int, size: Sequence[int]) -> tuple[_Draw, int]:
    return partial(torch.randint, low, high, tuple(size)), torch.Size(size).numel()


def _permuted(n: int) -> tuple[_Draw, int]:
    return partial(torch.randperm, n), n


_DRAWN: dict[Any, Callable[[tuple[Any, ...]], tuple[_Draw, int]]] = {
    _aten.randint.default: lambda args: _below(*args),
    _aten.randint.generator: lambda args: _below(*args),
    _aten.randint.low: lambda args: _between(*args),
    _aten.randint.low_generator: lambda args: _between(*args),
    _aten.randperm.default: lambda args: _permuted(*args),
    _aten.randperm.generator: lambda args: _permuted(*args),
}
"""Operators that draw integers, and what draws as many with a generator."""
_YES_OR_NO = {_aten.equal.default, _aten.is_nonzero.default, _aten.allclose.default}


def _counts(
    tensor: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor | None:
    """Count of each integer; ``None`` where only the integers determine their number.

    A script that says how many relies on it: a confusion matrix has a number for each pair.
    """
    if not minlength:
        return None
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype is torch.float32 else torch.float64
    return tensor.new_empty(minlength, dtype=dtype)


class _Selecting:
    """Number of elements that are selected.

    Attributes:
        evenly: Whether it was one choice among several, which are taken to be alike.
    """

    def __init__(self) -> None:
        self.evenly = False

    def count(self, mask: torch.Tensor) -> int:
        """Count a mask: all that there can be, unless it is known that others choose the rest."""
        expected = expected_true(mask)
        self.evenly |= expected is not None
        return mask.numel() if expected is None else expected


def _all_nonzero(selecting: _Selecting, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_empty((selecting.count(tensor), tensor.dim()), dtype=torch.int64)


def _all_indexed(
    selecting: _Selecting, tensor: torch.Tensor, indices: list[torch.Tensor | None]
) -> torch.Tensor:
    """Every element that a mask could choose."""
    rows: list[torch.Tensor | None] = []
    masks = [index for index in indices if index is not None]
    if masks and all(mask.dim() == 0 for mask in masks):  # one truth for all, or for none
        return tensor.new_empty((1, *tensor.shape))
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            rows += _all_nonzero(selecting, index).unbind(1)
        else:
            rows.append(index)
    indexed: torch.Tensor = _aten.index.Tensor(tensor, rows)
    return indexed


def _all_selected(selecting: _Selecting, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    return tensor.new_empty(selecting.count(mask) * shape.numel() // max(1, mask.numel()))


def _all_unique(
    selecting: _Selecting,
    tensor: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inverse = tensor.shape if return_inverse else (0,)
    counts = tensor.numel() if return_counts else 0
    return (
        tensor.new_empty(tensor.numel()),
        tensor.new_empty(inverse, dtype=torch.int64),
        tensor.new_empty(counts, dtype=torch.int64),
    )


def _all_consecutive(
    selecting: _Selecting,
    tensor: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if dim is not None:
        return _all_unique_rows(selecting, tensor, dim, True, return_inverse, return_counts)
    return _all_unique(selecting, tensor, True, return_inverse, return_counts)


def _all_unique_rows(
    selecting: _Selecting,
    tensor: torch.Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = tensor.shape[dim]
    return (
        tensor.new_empty(tensor.shape),
        tensor.new_empty(rows if return_inverse else 0, dtype=torch.int64),
        tensor.new_empty(rows if return_counts else 0, dtype=torch.int64),
    )


_LARGEST: dict[Any, Callable[..., Any]] = {
    _aten.nonzero.default: _all_nonzero,
    _aten.index.Tensor: _all_indexed,
    _aten.masked_select.default: _all_selected,
    _aten._unique2.default: _all_unique,
    _aten.unique_consecutive.default: _all_consecutive,
    _aten.unique_dim.default: _all_unique_rows,
}
"""Operators whose result has as many elements as their input at most."""


@contextmanager
def loading() -> Iterator[None]:
    """Make real tensors, for data, for as long as the context lasts.

    Fake ones that are there already go on answering, and may be mixed with them.
    """
    modes = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, ValuesMode)]
    with _disable_current_modes(), modes[-1].beside_real() if modes else nullcontext():
        yield


class _Kept:
    """Memory of an array that shares it with a tensor, and keeps it alive."""

    def __init__(self, array: Any, tensor: torch.Tensor) -> None:
        self.__array_interface__ = array.__array_interface__
        self._kept = array, tensor


@contextmanager
def answering(values: Values, fake: KnownValues) -> Iterator[None]:
    """Let fake tensors answer with these values, for as long as the context lasts."""

    def as_list(tensor: torch.Tensor) -> Any:
        return as_array(tensor).tolist()

    def as_array(tensor: torch.Tensor) -> Any:
        known = getattr(tensor, "constant", None)
        if known is not None:
            with _disable_current_modes():
                return known.detach().numpy().copy()
        with _disable_current_modes():
            like = torch.empty((), dtype=tensor.dtype).numpy().dtype
        return numpy.full(tuple(tensor.shape), values.answer(tensor.dtype), like)

    def to_numpy(tensor: torch.Tensor, *, force: bool = False) -> Any:
        if not force and tensor.is_cuda:
            raise TypeError(
                f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first."
            )
        if not force and tensor.requires_grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                "instead."
            )
        array = as_array(tensor)
        return array if tensor.is_cuda else numpy.asarray(_Kept(array, tensor))

    def to_text(tensor: torch.Tensor, spec: str) -> str:
        return format(tensor.item() if tensor.dim() == 0 else repr(tensor), spec)

    with ExitStack() as stack:
        stack.enter_context(ValuesMode(values, fake))
        stack.enter_context(patch.object(FakeTensor, "tolist", as_list))
        stack.enter_context(patch.object(FakeTensor, "__format__", to_text))
        stack.enter_context(patch.object(FakeTensor, "numpy", to_numpy))
        yield
