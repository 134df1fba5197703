"""Names of the module of a model at work while a step runs, forward and backward."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)


class ModuleNames:
    """Names the module at work as the model does, and the module that owns a parameter.

    Autograd numbers its nodes as the forward pass makes them, so a node's number says during which
    module's call it was made; backward then runs the same nodes.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._owners: dict[int, str] = {}
        self._stack: list[str] = []
        # From each of these node numbers on, the module of the same index made the nodes.
        self._numbers: list[int] = []
        self._makers: list[str] = []

    def learn(self, model: torch.nn.Module) -> None:
        """Take the names of a model's modules and parameters."""
        for name, module in model.named_modules():
            self._names[id(module)] = name
            for own in (module.parameters(recurse=False), module.buffers(recurse=False)):
                for tensor in own:
                    self._owners.setdefault(id(tensor), name)

    def owner(self, parameter: torch.Tensor) -> str:
        """The module that a parameter or buffer belongs to; empty if none is known."""
        return self._owners.get(id(parameter), "")

    def at_work(self) -> str:
        """The innermost module at work now; empty outside all of them."""
        if self._stack:
            return self._stack[-1]
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return ""
        index = bisect_right(self._numbers, node._sequence_nr()) - 1
        return self._makers[index] if index >= 0 else ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow every module's call for as long as the context lasts."""
        self._numbers.clear()
        self._makers.clear()
        hooks = (
            register_module_forward_pre_hook(self._enter),
            # A checkpoint's recomputation stops with an exception once it has all it needs.
            register_module_forward_hook(self._leave, always_call=True),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._stack.clear()

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        self._stack.append(self._names.get(id(module), self._stack[-1] if self._stack else ""))
        self._number_from_here()

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._stack.pop()
        self._number_from_here()

    def _number_from_here(self) -> None:
        self._numbers.append(torch._C._autograd._get_sequence_nr())
        self._makers.append(self._stack[-1] if self._stack else "")
