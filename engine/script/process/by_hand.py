"""Weights that a script changes itself, without a ``torch.optim.Optimizer``.

``p.data.add_(p.grad, alpha=-lr)`` in a loop, hooks that update each weight as soon as its gradient
is there, and optimizers of a script's own all do the same: after a backward pass they write to what
forward passes read, or put other tensors in its place. So an update is found by the operators that
run, whatever the code looks like, and is over when the next forward pass begins; of code without
modules, when the next backward pass does.

* A weight is a leaf of the graph that takes gradients: a parameter, or, in scripts that have none,
  a plain tensor. Where gradients are functions (``torch.func.grad``), it is what they are taken of.
* It has changed if it was written to since a backward pass began, or has another storage, or if
  the next backward pass is of other tensors of the same shapes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ...tracing.beside import runs_beside
from ...tracing.operations import tensors_in
from ...tracing.operator_mode import OperatorMode, unwrapped
from ...versions.patches import patched
from ..values.values import ScriptValues

_NO_PASS = -1
"""PyTorch's number of the backward pass that runs, where none does."""

_READ_NOTHING = {torch.ops.aten.detach.default, torch.ops.prim.device.default}
"""Operators that a weight's data, or its device, is asked by."""


@dataclass
class _Weight:
    number: int
    tensor: weakref.ref[torch.Tensor]
    storage: int  # its address


class UpdatesByHand:
    """The weights of a script, and its updates of them.

    Args:
        changed: Called once an update is over, with the numbers of the weights that it changed and
            of all that are known.

    Attributes:
        are_seen: Whether any operators were followed.
    """

    def __init__(self, changed: Callable[[set[int], set[int]], object]) -> None:
        self._changed = changed
        self._numbers = count()
        self._weights: dict[int, _Weight] = {}  # by the tensor's id, which another one may get
        self._storages: set[int] = set()
        self._are_parameters = False
        self._written: set[int] = set()  # addresses of storages, since the last backward pass began
        self._learned = False  # whether a backward pass has run since the last update
        self._looked = True  # whether weights have been compared since it ran
        # Shapes of what was read since the last backward pass began, and before that
        self._read: dict[int, tuple[int, ...]] = {}
        self._read_before: dict[int, tuple[int, ...]] = {}
        self._over = False
        self.are_seen = False

    def end(self) -> None:
        """Look no further: an optimizer of PyTorch says when it steps."""
        self._over = True
        self._weights.clear()

    def plain_weights(self) -> list[torch.Tensor]:
        """The weights that are no parameters of a module."""
        if self._are_parameters:
            return []
        alive = (weight.tensor() for weight in self._weights.values())
        return [tensor for tensor in alive if tensor is not None]

    @contextmanager
    def on_fake_tensors(self) -> Iterator[None]:
        """Follow the updates of a script that is traced, for as long as the context lasts."""
        modes = _get_current_dispatch_mode_stack()
        with ExitStack() as stack:
            for fake in (mode for mode in modes if isinstance(mode, ScriptValues)):
                stack.enter_context(
                    patched(
                        fake,
                        "watcher",
                        self._look,
                        why="updates without an optimizer are seen by their operators",
                    )
                )
                stack.enter_context(self._backward_passes())
            yield

    @contextmanager
    def on_real_tensors(self) -> Iterator[None]:
        """Follow those of a script that really runs; its operators take longer so."""
        with _Watching(self._look), self._backward_passes():
            yield

    @contextmanager
    def _backward_passes(self) -> Iterator[None]:
        self.are_seen = True
        backward, grad = torch.autograd.backward, torch.autograd.grad

        def all_gradients(*given: Any, **named: Any) -> Any:
            self._backward_begins(())
            return backward(*given, **named)

        def some_gradients(outputs: Any, inputs: Any, *given: Any, **named: Any) -> Any:
            self._backward_begins(tensors_in(inputs))
            return grad(outputs, inputs, *given, **named)

        with (
            patched(
                torch.autograd,
                "backward",
                all_gradients,
                why="a step begins its backward pass there",
            ),
            patched(
                torch.autograd,
                "grad",
                some_gradients,
                why="a step by hand may begin its backward pass there",
            ),
        ):
            yield

    def _look(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See what an operator that is about to run reads and writes."""
        if self._over or runs_beside():
            return
        if torch._C._current_graph_task_id() != _NO_PASS:
            self._learned, self._looked = True, False
        if args and func._schema.is_mutable:
            if self._learned:
                written = {tensor.untyped_storage()._cdata for tensor in tensors_in(args[0])}
                self._written |= written & self._storages
            args = args[1:]
        if torch.is_grad_enabled() and func not in _READ_NOTHING:
            read = (one for one in tensors_in((args, kwargs)) if one.requires_grad and one.is_leaf)
            self._see(list(read))

    def forward_begins(self) -> None:
        """Report what has changed since a backward pass, now that it is over."""
        if self._over or not self._learned:
            return
        if not self._looked:
            self._looked = True  # each of many modules asks
            for weight in list(self._weights.values()):
                self._compare(weight)
        if self._written:
            weights = list(self._weights.values())
            self._report({one.number for one in weights if one.storage in self._written})

    def _see(self, leaves: Sequence[torch.Tensor]) -> None:
        """Know weights that are read."""
        parameters = [leaf for leaf in leaves if isinstance(leaf, torch.nn.Parameter)]
        if parameters and not self._are_parameters:
            self._are_parameters = True  # other leaves are inputs that take gradients
            self._weights.clear()
            self._storages.clear()
        for leaf in parameters if self._are_parameters else leaves:
            self._know(leaf)

    def _know(self, leaf: torch.Tensor) -> None:
        key, storage = id(leaf), leaf.untyped_storage()._cdata
        known = self._weights.get(key)
        if known is None:
            gone = weakref.ref(leaf, lambda _: self._weights.pop(key, None))
            known = self._weights[key] = _Weight(next(self._numbers), gone, storage)
            self._storages.add(storage)
        else:
            self._compare(known)
        self._read[known.number] = tuple(leaf.shape)

    def _compare(self, known: _Weight) -> None:
        """See whether a weight has another storage than it had."""
        tensor = known.tensor()
        storage = known.storage if tensor is None else tensor.untyped_storage()._cdata
        if storage == known.storage:
            return
        self._storages = self._storages - {known.storage} | {storage}
        known.storage = storage
        if self._learned:
            self._written.add(storage)

    def _backward_begins(self, inputs: Iterable[torch.Tensor]) -> None:
        """See the weights that a backward pass is of."""
        if self._over or runs_beside() or torch._C._current_graph_task_id() != _NO_PASS:
            return
        given = list(inputs)
        self._see([one for one in given if one.is_leaf and unwrapped(one) is one])
        for one in given:
            if (inner := unwrapped(one)) is not one:
                self._know(inner)
        self.forward_begins()
        new = {one: shape for one, shape in self._read.items() if one not in self._read_before}
        if self._learned and new and _alike(new, self._read_before):
            weights = self._weights.items()
            self._weights = {k: one for k, one in weights if one.number not in self._read_before}
            self._report(set(new))
            self._read = new  # an update reads what it replaces
        if self._read:
            self._read, self._read_before = {}, self._read

    def _report(self, changed: set[int]) -> None:
        self._written.clear()
        if changed:
            self._learned = False
            self._changed(changed, {one.number for one in self._weights.values()})


def _alike(some: Mapping[int, tuple[int, ...]], others: Mapping[int, tuple[int, ...]]) -> bool:
    """Whether weights have the shapes of others: they stand in their place."""
    return sorted(some.values()) == sorted(others.values())


class _Watching(OperatorMode):
    """Shows each operator on real tensors."""

    def __init__(self, look: Callable[[Any, Sequence[Any], Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._look = look

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Show the operator, then run it."""
        self._look(func, args, kwargs)
        return func(*args, **kwargs)
