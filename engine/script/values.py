"""Values of tensors that have none: placeholders, and whether an answer depends on them.

Fake tensors have shapes but no values. Where a script reads one (``loss.item()``, ``if loss > 1``,
a sampler's seed), it gets a placeholder and goes on. Its steps are traced again with other
placeholders: where the memory stays the same, it does not depend on the values; where it changes,
there is no prediction, and the error names the line. Values that are known all the same are kept:
numbers that the script itself writes down, and the integers and booleans computed from them.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from unittest.mock import patch

import numpy
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..errors import EngineError
from ..tracing.known_values import KnownValues
from ..tracing.trace import Trace

_aten = torch.ops.aten

MOST_KNOWN = 2**18
"""Integers and booleans are computed for real up to so many in a tensor: enough for the token ids
and masks of the batches that are traced."""

ENDLESS = 2_000
"""So many booleans read in a row on one line are taken for a loop that only its values end, as
rejection sampling is."""

Value = bool | int | float | complex


@dataclass(frozen=True)
class Line:
    """A line of code that reads a value.

    Attributes:
        file: Its path.
        number: From 1.
    """

    file: str
    number: int

    def __str__(self) -> str:
        code = linecache.getline(self.file, self.number).strip()
        return f"{Path(self.file).name}, line {self.number}" + (f" ({code})" if code else "")


@dataclass(frozen=True)
class Placeholders:
    """What a script gets instead of values.

    Attributes:
        integer, real, truth: By type.
        at: Other placeholders for some lines.
    """

    integer: int = 1
    real: float = 1.0
    truth: bool = False
    at: Mapping[Line, Placeholders] = field(default_factory=dict)

    def of(self, dtype: torch.dtype, line: Line) -> Value:
        """The placeholder for a value of that type that is read on that line."""
        there = self.at.get(line, self)
        if dtype is torch.bool:
            return there.truth
        if dtype.is_complex:
            return complex(there.real)
        return there.real if dtype.is_floating_point else there.integer


FIRST = Placeholders()
OTHERS = (Placeholders(0, 0.0, True), Placeholders(7, 1e4, False))
"""Zero lies below the thresholds that code compares with, and ten thousand above those of losses
and norms. An integer may be a length or an index, so it stays small."""

_MOST_ATTEMPTS = 8


@dataclass
class Values:
    """What a script reads of its tensors while it is traced, and what it gets.

    Attributes:
        placeholders: What it gets.
        read: How often each line got a placeholder.
        bounded: How often each line selected by values, and got all that there could be.
        users: The user's own line behind each of these lines.
        last: The line that got the latest placeholder.
    """

    placeholders: Placeholders = FIRST
    read: Counter[Line] = field(default_factory=Counter)
    bounded: Counter[Line] = field(default_factory=Counter)
    users: dict[Line, Line] = field(default_factory=dict)
    last: Line | None = None
    _in_a_row: int = 0

    def answer(self, dtype: torch.dtype) -> Value:
        """The placeholder for the line that is running.

        Raises:
            EndlessLoop: If that line does nothing but ask.
        """
        line = self._line()
        self._in_a_row = self._in_a_row + 1 if line == self.last and dtype is torch.bool else 0
        if self._in_a_row > ENDLESS:
            raise EndlessLoop(f"{line} loops until a tensor has another value")
        self.read[line] += 1
        self.last = line
        return self.placeholders.of(dtype, line)

    def bound(self) -> None:
        """Take down that the line that is running got a tensor of the largest size there is."""
        self.bounded[self._line()] += 1

    def lines(self) -> list[str]:
        """The user's own lines that got placeholders, in the order of the first time."""
        return list(dict.fromkeys(str(self.users[line]) for line in self.read))

    def bounded_lines(self) -> list[str]:
        """The user's own lines that selected by values."""
        return list(dict.fromkeys(str(self.users[line]) for line in self.bounded))

    def _line(self) -> Line:
        """The line that runs, outside PyTorch and the engine."""
        frame: FrameType | None = sys._getframe(1)
        found: Line | None = None
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(_PLUMBING):
                found = found or Line(file, frame.f_lineno)
                if not file.startswith(_INSTALLED):
                    self.users.setdefault(found, Line(file, frame.f_lineno))
                    return found
            frame = frame.f_back
        found = found or Line("?", 0)
        self.users.setdefault(found, found)
        return found


_ENGINE = Path(__file__).parents[1]
_PLUMBING = (
    str(Path(torch.__file__).parent),
    *(f"{_ENGINE / room}/" for room in ("script", "tracing", "parallel", "prediction")),
    "<",
)
_INSTALLED = (*(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")),)


class EndlessLoop(EngineError):
    """A loop that ends only when a tensor has another value than its placeholder."""


class DependsOnValues(EngineError):
    """Memory depends on a value, so nothing can be said without running the steps.

    Attributes:
        line: Where it is read, in the user's own code.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        super().__init__(f"memory depends on a tensor's value, read at {line}")


TraceWith = Callable[[Values], Trace]
"""Traces with these values, and takes down in them what was read."""

_Found = TypeVar("_Found")


def first_that_runs(run_with: Callable[[Values], _Found]) -> tuple[_Found, Values]:
    """What comes of the first placeholders that let the steps run to their end.

    Args:
        run_with: Runs them with these values, and takes down in them what was read.

    Raises:
        EngineError: What it raises if none do.
    """
    attempts = [FIRST]
    refused: EngineError | None = None
    for placeholders in attempts:  # grows
        values = Values(placeholders)
        try:
            return run_with(values), values
        except EngineError as error:
            refused = refused or error
            line = values.last
            if line is None or line in placeholders.at:
                continue
            attempts += [replace(placeholders, at={**placeholders.at, line: o}) for o in OTHERS]
            del attempts[_MOST_ATTEMPTS:]
    assert refused is not None  # noqa: S101 - at least one attempt was made
    raise refused


def check_values(trace_with: TraceWith, trace: Trace, values: Values) -> None:
    """Make sure that other placeholders would have given the same trace.

    Where other values end the steps in an error, they are not those of a training run that goes on:
    a check for NaN, say.

    Args:
        trace_with: Traces anew.
        trace: What :func:`first_that_runs` returned.
        values: What it returned with it.

    Raises:
        DependsOnValues: If they give other allocations.
    """
    for other in OTHERS if values.read else ():
        _compare(trace_with, trace, values, other)


def _compare(trace_with: TraceWith, trace: Trace, values: Values, other: Placeholders) -> None:
    """Refuse steps that other placeholders change, on all lines at once or on one of them."""
    everywhere = replace(other, at=values.placeholders.at)
    if _alike(trace_with, trace, everywhere) is True:
        return
    lines = [line for line in values.read if line not in values.placeholders.at]
    for line in lines:
        only = replace(values.placeholders, at={**values.placeholders.at, line: other})
        if _alike(trace_with, trace, only) is False:
            raise DependsOnValues(values.users[line])


def _alike(trace_with: TraceWith, trace: Trace, placeholders: Placeholders) -> bool | None:
    """Whether they give the same allocations; ``None`` if they end in an error."""
    try:
        traced = trace_with(Values(placeholders))
    except EngineError:
        return None
    return _blocks(traced) == _blocks(trace)


def _blocks(trace: Trace) -> list[tuple[int, int]]:
    """What the caching allocator is asked for, in order: it rounds sizes up to 512 bytes."""
    return [(kind, -(-trace.sizes[tensor] // 512)) for kind, tensor in trace.events]


class ScriptValues(KnownValues):
    """Fake tensors that keep their values where the script writes them down."""

    @property
    def avoid_device_init(self) -> bool:
        """True: a GPU that is really there is left alone."""
        return True

    @avoid_device_init.setter
    def avoid_device_init(self, value: bool) -> None:  # PyTorch 2.10 and older set it
        pass

    def may_turn_const(self, t: torch.Tensor) -> bool:
        """Whether a real tensor is small enough to be computed with."""
        most = 1 if t.is_floating_point() or t.is_complex() else MOST_KNOWN
        return type(t) is torch.Tensor and t.device.type == "cpu" and t.numel() <= most


class ValuesMode(TorchDispatchMode):
    """Answers what fake tensors cannot, while it is the active dispatch mode.

    Args:
        values: The answers; takes down who asked.
        fake: The mode below it.
    """

    def __init__(self, values: Values, fake: FakeTensorMode) -> None:
        super().__init__()
        self._values = values
        self._fake = fake

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
        if func in _WRITTEN_DOWN and (known := self._known(func, args, kwargs)) is not None:
            return known
        try:
            return func(*args, **kwargs)
        except DataDependentOutputException:
            if func is _aten._local_scalar_dense.default:
                return self._values.answer(args[0].dtype)
            if func in _YES_OR_NO:
                return self._values.answer(torch.bool)
            raise
        except DynamicOutputShapeException:
            if func not in _LARGEST:
                raise
            self._values.bound()
            return _LARGEST[func](*args, **kwargs)

    def _known(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor of integers with its values; ``None`` for any other."""
        if kwargs.get("pin_memory") or str(kwargs.get("device") or "cpu") != "cpu":
            return None
        if not _few(func, args):
            return None
        with _disable_current_modes():
            real = func(*args, **kwargs)
        if real.is_floating_point() or not self._fake.may_turn_const(real):
            return None
        return self._fake.fake_tensor_converter.from_real_tensor(
            self._fake, real, make_constant=True
        )


_WRITTEN_DOWN = {
    _aten.arange.default,
    _aten.arange.start,
    _aten.arange.start_step,
    _aten.full.default,
    _aten.ones.default,
    _aten.zeros.default,
}
_YES_OR_NO = {_aten.equal.default, _aten.is_nonzero.default, _aten.allclose.default}


def _few(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a tensor that is written down as numbers can be made for real."""
    if func._overloadpacket is _aten.arange:
        numbers = [abs(number) for number in args if isinstance(number, int | float)]
        return bool(numbers) and max(numbers) <= MOST_KNOWN
    elements = 1
    for length in args[0]:
        elements *= int(length)
    return elements <= MOST_KNOWN


def _all_nonzero(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_empty((tensor.numel(), tensor.dim()), dtype=torch.int64)


def _all_indexed(tensor: torch.Tensor, indices: list[torch.Tensor | None]) -> torch.Tensor:
    """Every element that a mask could choose."""
    rows: list[torch.Tensor | None] = []
    masks = [index for index in indices if index is not None]
    if masks and all(mask.dim() == 0 for mask in masks):  # one truth for all, or for none
        return tensor.new_empty((1, *tensor.shape))
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            rows += _all_nonzero(index).unbind(1)
        else:
            rows.append(index)
    indexed: torch.Tensor = _aten.index.Tensor(tensor, rows)
    return indexed


def _all_selected(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    return tensor.new_empty(shape.numel())


def _all_unique(
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
    tensor: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if dim is not None:
        return _all_unique_rows(tensor, dim, True, return_inverse, return_counts)
    return _all_unique(tensor, True, return_inverse, return_counts)


def _all_unique_rows(
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
def answering(values: Values, fake: FakeTensorMode) -> Iterator[None]:
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
        return as_array(tensor)

    def to_text(tensor: torch.Tensor, spec: str) -> str:
        return format(tensor.item() if tensor.dim() == 0 else repr(tensor), spec)

    with ExitStack() as stack:
        stack.enter_context(ValuesMode(values, fake))
        stack.enter_context(patch.object(FakeTensor, "tolist", as_list))
        stack.enter_context(patch.object(FakeTensor, "__format__", to_text))
        stack.enter_context(patch.object(FakeTensor, "numpy", to_numpy))
        yield
