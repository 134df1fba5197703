"""Values of fake tensors: what a script reads is answered, by what is known or a placeholder.

Known are the numbers that the script itself writes down, integers that it draws at random (each
trace draws its own), and what is computed from them as long as it is small. For all others, see
:mod:`.placeholders`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import (
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)

from ...tracing.beside import runs_beside
from ...tracing.kept_values import MAX_KNOWN
from ...tracing.known_values import KnownValues
from ...tracing.operations import tensors_in
from ...tracing.operator_mode import OperatorMode
from ...tracing.whole_operators import arrives_whole, in_parts
from ...versions.patches import patched
from ..devices.cuda_device import modes_of_places
from ..devices.sparse import refuse_sparse
from .chosen_indices import follow_indices, set_at_indices
from .counts import follow_counts, most_of
from .placeholders import Values
from .routing import (
    counted,
    expected_counts,
    expected_true,
    follow_choices,
    follow_table,
    set_in_a_table,
)
from .selections import Selecting, largest_of

_aten = torch.ops.aten


class _InThread(threading.local):
    """State of the mode in one thread."""

    def __init__(self) -> None:
        self.enter_stack: list[Any] = []
        self.in_kernel = False


class ScriptValues(KnownValues):
    """Fake tensors that keep their values where the script writes them down.

    Attributes:
        watcher: Sees each operator of training before it runs, with its arguments.
    """

    keeps_whole_reals = False  # a script's parameters are made among them
    keeps_copies = True  # lengths may be read of buffers that are filled for each batch
    demands_hold = True

    def __init__(self) -> None:
        self._in_thread = _InThread()
        super().__init__()
        self.watcher: Callable[[Any, Sequence[Any], Mapping[str, Any]], None] | None = None
        self._turn = threading.RLock()

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator, shown to who watches.

        Threads beside training take turns: an operator may change what is known of its arguments.
        """
        with self._turn:
            if self.watcher is not None:
                self.watcher(func, args, kwargs or {})
            return super().dispatch(func, types, args, kwargs)

    # FakeTensorMode keeps these two, and each thread has its own stack of modes.
    @property
    def enter_stack(self) -> list[Any]:
        """The contexts entered, in this thread."""
        return self._in_thread.enter_stack

    @enter_stack.setter
    def enter_stack(self, entered: list[Any]) -> None:
        self._in_thread.enter_stack = entered

    @property
    def in_kernel_invocation(self) -> bool:
        """Whether a kernel of fake tensors runs, in this thread."""
        return self._in_thread.in_kernel

    @in_kernel_invocation.setter
    def in_kernel_invocation(self, runs: bool) -> None:
        self._in_thread.in_kernel = runs

    @property
    def avoid_device_init(self) -> bool:
        """True: a GPU that is really there is left alone."""
        return True

    @avoid_device_init.setter
    def avoid_device_init(self, value: bool) -> None:  # PyTorch 2.10 and older set it
        pass


class ValuesMode(OperatorMode):
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

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator; where that takes values, answer in its place."""
        self._values.one_more_operator()
        if self._beside_real and not _any_fake((args, kwargs)):
            return func(*args, **kwargs)
        refuse_sparse(func, tensors_in((args, kwargs)))
        if arrives_whole(func):
            return in_parts(self, func, args, kwargs)
        if (columns := counted(func, args)) is not None:
            return self._counted_evenly(columns)
        if (drawn := self._draw(func, args, kwargs)) is not None:
            return drawn
        filled = set_at_indices(self._fake, func, args)
        share = set_in_a_table(self._fake, func, args)
        try:
            output = func(*args, **kwargs)
        except DataDependentOutputException:
            if func is _aten._local_scalar_dense.default:
                return self._values.answer(args[0].dtype, most_of(args[0]))
            if func in _YES_OR_NO:
                return self._values.answer(torch.bool)
            raise
        except DynamicOutputShapeException:
            selected = self._select(func, args, kwargs)
            if selected is None:
                raise
            follow_counts(func, args, selected)
            return selected
        follow_indices(func, args, output, filled)
        follow_counts(func, args, output)
        self._follow_choices(func, args, output, share)
        return output

    def _follow_choices(
        self, func: Any, args: tuple[Any, ...], output: Any, share: Fraction | None
    ) -> None:
        follow_choices(func, args, output)
        if share is not None:
            follow_table(output, share)
        if func is _aten.any.default and expected_true(args[0]):
            self._fake.say(output, True)  # each choice is made by some

    def _draw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Random integers with their values; ``None`` where they are too many, or no integers."""
        if func not in _DRAWN:
            return None
        draw, elements = _DRAWN[func](args)
        if elements > MAX_KNOWN or runs_beside():
            return None
        self._values.drawn = True
        with _disable_current_modes():
            dtype = kwargs.get("dtype") or torch.int64
            real = draw(dtype=dtype, generator=self._random)
        drawn = self._with_values(real)
        if drawn is not None:
            follow_indices(func, args, drawn)
        return drawn

    def _select(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The selection that values would make; ``None`` where nobody knows how large it can be."""
        if func is _aten.bincount.default and (counts := self._count(args, kwargs)) is not None:
            return counts
        if (largest := largest_of(func)) is None:
            return None
        found = Selecting()
        selected = largest(found, *args, **kwargs)
        if not found.is_exact:
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
        return self._counted_evenly(expected)

    def _counted_evenly(self, counts: list[int]) -> Any:
        """Counts of choices that are taken to be alike."""
        self._values.selected(evenly=True)
        with _disable_current_modes():
            real = torch.tensor(counts)
        return self._fake.fake_tensor_converter.from_real_tensor(
            self._fake, real, make_constant=True
        )

    def _with_values(self, real: torch.Tensor) -> Any:
        """A fake tensor that keeps the values of a real one; ``None`` if they are too many."""
        if not self._fake.may_turn_const(real):
            return None
        return self._fake.fake_tensor_converter.from_real_tensor(
            self._fake, real, make_constant=True
        )


def _any_fake(value: Any) -> bool:
    return any(isinstance(tensor, FakeTensor) for tensor in tensors_in(value))


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


@contextmanager
def loading() -> Iterator[None]:
    """Make real tensors, for data, for as long as the context lasts.

    Fake ones that are there already go on answering, and may be mixed with them. Where any would be
    is noted.
    """
    modes = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, ValuesMode)]
    with ExitStack() as stack:
        places = modes_of_places()
        stack.enter_context(_disable_current_modes())
        for mode in modes[-1:]:
            stack.enter_context(mode.beside_real())
        for place in places:
            stack.enter_context(place)
        yield


class _Kept:
    """Memory of an array that shares it with a tensor, and keeps it alive."""

    def __init__(self, array: Any, tensor: torch.Tensor) -> None:
        self.__array_interface__ = array.__array_interface__
        self._kept = array, tensor


_DATA: Any = torch.Tensor.data


def _set_data(tensor: Any, data: torch.Tensor) -> None:
    """Give a tensor other data, as ``module.bfloat16()`` does: what is known is that of these."""
    _DATA.__set__(tensor, data)
    tensor.constant = getattr(data, "constant", None)


def _with_lengths(ctc_loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """CTC's loss, whose lengths may be lists: their values are known, as those of tensors are."""

    def loss(log_probabilities: torch.Tensor, targets: torch.Tensor, *others: Any) -> torch.Tensor:
        there = log_probabilities.device
        given = [
            torch.tensor(one).to(there) if isinstance(one, list | tuple) else one for one in others
        ]
        return ctc_loss(log_probabilities, targets, *given)

    return loss


def _mapped_from_file(
    mapped: Callable[..., torch.Tensor],
    filename: Any,
    shared: bool | None = None,
    size: int | None = 0,
    **kwargs: Any,
) -> torch.Tensor:
    """The numbers of a file; what is written to them stays out of it."""
    with _disable_current_modes():
        real = mapped(filename, False, size, **kwargs)
    return cast(torch.Tensor, _aten.lift_fresh.default(real))


@contextmanager
def answering(values: Values, fake: KnownValues) -> Iterator[None]:
    """Let fake tensors answer with these values, for as long as the context lasts."""
    frombuffer = torch.frombuffer

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

    def from_buffer(*args: Any, **kwargs: Any) -> torch.Tensor:
        return cast(torch.Tensor, _aten.lift_fresh.default(frombuffer(*args, **kwargs)))

    def to_text(tensor: torch.Tensor, spec: str) -> str:
        return format(tensor.item() if tensor.dim() == 0 else repr(tensor), spec)

    with ExitStack() as stack:
        stack.enter_context(ValuesMode(values, fake))
        for owner, name, answer in (
            (torch, "frombuffer", from_buffer),
            (torch, "from_file", partial(_mapped_from_file, torch.from_file)),
            (torch, "ctc_loss", _with_lengths(torch.ctc_loss)),
            (FakeTensor, "tolist", as_list),
            (FakeTensor, "__format__", to_text),
            (FakeTensor, "data", property(_DATA.__get__, _set_data)),
            (FakeTensor, "numpy", to_numpy),
        ):
            stack.enter_context(
                patched(owner, name, answer, why="values are known ones or placeholders")
            )
        yield
