"""Makes the tensors fake that live training holds: in modules, optimizers and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from ...core.errors import EngineError
from ..data.loaders import arrived

Put = Callable[[torch.Tensor], object]
"""Puts a tensor where another one is."""

_CLOSED = (str, bytes, int, float, complex, type, ModuleType, CodeType, Dataset, DataLoader)
"""Types that are not looked into. Data is loaded as it is; each batch becomes fake on arrival."""

_DATA = ("train_dataset", "eval_dataset")
"""Attributes of a Trainer, whose data may be a plain list."""

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class TakingOver:
    """Replaces tensors by fake ones, while fake tensors are made; in a fork.

    Attributes:
        modules: Modules that were found.
        optimizers: Optimizers that were found.
    """

    def __init__(self) -> None:
        self.modules: list[torch.nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self._fakes: dict[int, torch.Tensor] = {}
        self._met: dict[int, object] = {}  # kept: the fork must not free what is on a real GPU

    def look_into(self, held: object) -> None:
        """Replace every tensor that an object leads to by attributes, containers and closures.

        Raises:
            EngineError: For a tensor of a class of its own, such as one in 4 bits.
        """
        waiting = [held]
        while waiting:
            value = waiting.pop()
            if value is None or isinstance(value, _CLOSED) or id(value) in self._met:
                continue
            self._met[id(value)] = value
            if isinstance(value, torch.nn.Module):
                self.modules.append(value)
            elif isinstance(value, Optimizer):
                self.optimizers.append(value)
            for inner, put in _held_by(value):
                if isinstance(inner, torch.Tensor):
                    put(self._fake(inner))
                else:
                    waiting.append(inner)
        self._fakes.clear()  # gradients have to go when they are dropped

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) not in _PLAIN or tensor.layout is not torch.strided:
            raise EngineError(
                f"it holds a {type(tensor).__name__}, which cannot be followed here; save it as a "
                "script and use `memorymark predict SCRIPT.py`"
            )
        if id(tensor) not in self._fakes:
            self._met[id(tensor)] = tensor
            made: torch.Tensor = arrived(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, tensor.requires_grad)
            self._fakes[id(tensor)] = made.requires_grad_(tensor.requires_grad)
            if tensor.grad is not None:
                made.grad = self._fake(tensor.grad)
        return self._fakes[id(tensor)]


def _held_by(value: Any) -> Iterator[tuple[object, Put]]:
    """Objects that a value holds, and functions that put another tensor there."""
    if isinstance(value, dict):
        yield from _held_by_mapping(value)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield inner, partial(value.__setitem__, index)
    elif isinstance(value, tuple | set | frozenset):
        yield from ((inner, _nowhere) for inner in value)
    elif isinstance(value, FunctionType | MethodType | partial):
        yield from _held_by_callable(value)
    elif isinstance(attributes := getattr(value, "__dict__", None), dict):
        for name, inner in list(attributes.items()):
            if name not in _DATA:
                yield inner, partial(attributes.__setitem__, name)


def _held_by_mapping(held: dict[Any, Any]) -> Iterator[tuple[object, Put]]:
    for key, inner in list(held.items()):
        if isinstance(key, torch.Tensor):  # the state of an optimizer
            yield key, partial(_rename, held, key)
            yield inner, _nowhere
        else:
            yield inner, partial(held.__setitem__, key)


def _held_by_callable(
    value: FunctionType | MethodType | partial[Any],
) -> Iterator[tuple[object, Put]]:
    if isinstance(value, FunctionType):
        yield from _variables(value)
    elif isinstance(value, MethodType):
        yield from ((value.__self__, _nowhere), (value.__func__, _nowhere))
    else:
        yield from ((part, _nowhere) for part in (value.func, value.args, value.keywords))


def _variables(function: FunctionType) -> Iterator[tuple[object, Put]]:
    """The variables of a function that are not its own."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it is empty
            yield cell.cell_contents, partial(setattr, cell, "cell_contents")
    variables = function.__globals__
    for name in _names(function.__code__) & variables.keys():
        yield variables[name], partial(variables.__setitem__, name)


def _names(code: CodeType) -> set[str]:
    """The names that code looks up outside, with those of the functions in it."""
    inner = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inner)


def _rename(state: dict[Any, Any], key: torch.Tensor, tensor: torch.Tensor) -> None:
    state[tensor] = state.pop(key)


def _nowhere(tensor: torch.Tensor) -> None:
    """Leave a tensor whose holder cannot be changed; using it will be refused by name."""
