"""The training steps of a script, observed from outside; measured and traced alike.

A script provides nothing but its factory, so PyTorch's hooks reveal what its tensors are for:
modules as they register parameters, optimizers as they step.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ..factory import Factory, ScriptFailed, Step, cannot_be_called
from ..values.searches import begin_search


class FoundModules:
    """The modules created while this is the hook; it keeps none of them alive."""

    def __init__(self) -> None:
        self._found: dict[int, weakref.ref[torch.nn.Module]] = {}

    def see(self, module: torch.nn.Module, name: str, part: object) -> None:
        """Called when a module registers a parameter, a buffer or a submodule."""
        self._found[id(module)] = weakref.ref(module)

    def outermost(self) -> torch.nn.Module:
        """The module that contains all others; a list where there are several."""
        models = self.models()
        return models[0] if len(models) == 1 else torch.nn.ModuleList(models)

    def models(self) -> list[torch.nn.Module]:
        """The modules that are in no other, and have parameters.

        What contains a module may have gone by now: peft wraps a model only to put adapters in.
        """
        alive = [module for found in self._found.values() if (module := found()) is not None]
        inner = {id(part) for module in alive for part in module.children()}
        return [module for module in alive if id(module) not in inner and list(module.parameters())]


class FoundOptimizers:
    """All optimizers that have stepped, treated as one.

    Attributes:
        stepping: Whether one of them is stepping now.
    """

    def __init__(self) -> None:
        self.stepping = False
        self._found: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def before(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        begin_search(optimizer)
        self.stepping = True

    def after(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        self.stepping = False
        self._found.add(optimizer)

    def __iter__(self) -> Iterator[torch.optim.Optimizer]:
        return iter(self._found)

    @property
    def state(self) -> dict[Any, Any]:
        return {id(optimizer): dict(optimizer.state) for optimizer in self._found}


class ScriptSteps:
    """The steps of a factory at one batch size.

    Args:
        factory: The script's.
        batch_size: Samples per step.

    Attributes:
        model: The model that the factory created, or a list of several.
        optimizer: All optimizers of the script.
    """

    def __init__(self, factory: Factory, batch_size: int) -> None:
        self.model: torch.nn.Module = torch.nn.ModuleList()
        self.optimizer = FoundOptimizers()
        self._factory = factory
        self._batch_size = batch_size
        self._step: Step | None = None
        self._hooks = ExitStack()

    def build(self, device: str) -> None:
        """Import the factory. It chooses the device itself.

        Raises:
            InvalidInput: If there is no such factory.
            ScriptFailed: If its module raised an error.
        """
        self._make = self._factory.load()

    @property
    def recorded(self) -> ScriptSteps:
        return self

    @property
    def phase(self) -> str:
        """Phase that the script is in now, as far as that can be seen from outside."""
        if self._step is None:
            return "inputs"
        if torch._C._current_graph_task_id() != -1:  # autograd runs in this thread
            return "backward"
        return "optimizer" if self.optimizer.stepping else "forward"

    def begin(self) -> None:
        """Let the factory create model, optimizer and data.

        Raises:
            ScriptFailed: If it does not return a step.
        """
        modules = FoundModules()
        for register, hook in (
            (register_optimizer_step_pre_hook, self.optimizer.before),
            (register_optimizer_step_post_hook, self.optimizer.after),
        ):
            self._hooks.callback(register(hook).remove)
        with ExitStack() as making:
            for register_part in (
                register_module_parameter_registration_hook,
                register_module_buffer_registration_hook,
                register_module_module_registration_hook,
            ):
                making.callback(register_part(modules.see).remove)
            step = self._make(self._batch_size)
        if not callable(step):
            raise ScriptFailed(
                f"{self._factory.name}({self._batch_size}) returned a {type(step).__name__}; it "
                "must return a function that takes no arguments and runs one training step "
                "(memorymark.predict also takes one that runs the step itself)"
            )
        if why := cannot_be_called(step):
            raise ScriptFailed(
                f"{self._factory.name}({self._batch_size}) returned a function that needs "
                f"arguments ({why}); it must take none and run one training step"
            )
        self.model = modules.outermost()
        self._step = step

    def step(self) -> None:
        if self._step is None:
            raise ValueError("not begun yet")
        self._step()

    def out_of_memory(self, error: BaseException) -> str:
        """The line of the script at which memory ran out."""
        return f"out of memory{self._factory.where(error)}"

    def close(self) -> None:
        self._hooks.close()
