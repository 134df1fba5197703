"""Runs a program as ``__main__`` and reports when a training step of it ends.

A script decides itself when it trains, so nothing can call its step: PyTorch's hooks show what it
is doing. The caller ends the process once it has seen enough.
"""

from __future__ import annotations

import os
import runpy
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_forward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ...tracing.apart import runs_apart
from ...tracing.beside import runs_beside
from ...versions.patches import patched
from ..data.batch_constant import batch_constant, compiled_with
from ..factory import ScriptFailed
from ..live import Live
from ..program import Program
from ..values.searches import begin_search
from .accelerate_state import forget_accelerate
from .by_hand import UpdatesByHand
from .steps import FoundModules, FoundOptimizers
from .taking_over import TakingOver
from .unlike_steps import STEPS

_MAX_IDLE_STEPS = 10
"""Number of steps of one optimizer after which another that has not stepped is taken to be unused.
A GAN's critic usually steps 5 times as often as its generator."""


class Turns:
    """Finds where a training step ends: all that trains has been updated since the last one did.

    What is updated is an optimizer that steps, or a weight that the script changes itself. A step
    ends with one optimizer's every step, and in a GAN with that of the generator, after those of
    the discriminator.
    """

    def __init__(self) -> None:
        self._made: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._used: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._changed: set[int] = set()
        self._since: Counter[int] = Counter()  # updates, since the last training step ended
        self._gave_up = False

    def made(self, optimizer: Optimizer) -> None:
        self._made.add(optimizer)

    def stepped(self, optimizer: Optimizer) -> bool:
        """Whether a training step ends with this step of an optimizer."""
        self._changed.clear()
        self._used.add(optimizer)
        return self._ended({id(optimizer)}, set())

    def changed(self, weights: set[int], known: set[int]) -> bool:
        """Whether a training step ends with these changes by hand, of all weights that are known.

        Args:
            weights: Numbers of the weights that were changed.
            known: Those of all weights.
        """
        self._changed = (self._changed | weights) & known
        return self._ended(weights, known)

    def _ended(self, updated: set[int], known: set[int]) -> bool:
        self._since.update(updated)
        self._gave_up |= max(self._since.values()) >= _MAX_IDLE_STEPS
        expected = self._changed | {id(optimizer) for optimizer in self._used}
        if not self._gave_up:
            expected |= known | {id(optimizer) for optimizer in filter(_trains, self._made)}
        ended = expected <= self._since.keys()
        if ended:
            self._since.clear()
        return ended


def _trains(optimizer: Optimizer) -> bool:
    return any(p.requires_grad for group in optimizer.param_groups for p in group["params"])


class ProgramSteps:
    """The steps of a program at one batch size, observed from outside.

    Args:
        program: The script.
        batch_size: Samples per step; ``None`` leaves the script's own.
        step_ended: Called where a training step ends.
        entered: Called before a module's forward pass, after the step before has ended.

    Attributes:
        program: The script.
        model: The model that the script trains, or a list of several; known once a step has ended,
            or it was found before.
        optimizer: All optimizers of the script.
        by_hand: Weights that it updates without one.
        ended: Number of training steps that have ended.
    """

    def __init__(
        self,
        program: Program | Live,
        batch_size: int | None,
        step_ended: Callable[[], None],
        entered: Callable[[torch.nn.Module], None] = lambda module: None,
    ) -> None:
        self.model: torch.nn.Module = torch.nn.ModuleList()
        self.optimizer = FoundOptimizers()
        self.by_hand = UpdatesByHand(self._changed_by_hand)
        self.ended = 0
        self.program = program
        self._batch_size = batch_size
        self._step_ended, self._entered = step_ended, entered
        self._modules = FoundModules()
        self._turns = Turns()
        self._stepping: list[Optimizer] = []  # one may wrap another
        self._forward = self._backward = False  # whether this step has got there
        self._trains_beside = False

    @property
    def phase(self) -> str:
        """Phase that the script is in now, as far as that can be seen from outside."""
        if torch._C._current_graph_task_id() != -1:  # autograd runs in this thread
            self._backward = True
            return "backward"
        if self._stepping and (self._backward or not self._forward):
            return "optimizer"  # a closure may run the forward pass first
        if self._backward:
            return "idle"
        return "forward" if self._forward else "inputs"

    def run(self) -> NoReturn:
        """Run the script.

        Raises:
            ScriptFailed: When it ends.
            BaseException: What it raises.
        """
        with self._watched():
            if isinstance(self.program, Live):
                self._run_on(self.program)
            else:
                forget_accelerate()
                with as_main(self.program, self._batch_size):
                    runpy.run_path(self.program.path, run_name="__main__")
        raise ScriptFailed(self.ended_early())

    def _run_on(self, live: Live) -> None:
        """Run what has been made already, on fake tensors from here on."""
        found = TakingOver()
        found.look_into(live.held)
        for module in found.modules:
            self._modules.see(module, "", None)
        for optimizer in found.optimizers:
            self._turns.made(optimizer)
        live.train(self._batch_size or live.batch_size or 1)

    def find_model(self) -> None:
        """Find the model among the modules that the script has made."""
        self.model = self._modules.outermost()

    def models(self) -> list[torch.nn.Module]:
        """The models that the script has made by now."""
        return self._modules.models()

    def ended_early(self) -> str:
        """Why a script that has come to its end cannot be predicted."""
        name = self.program.name
        if self._trains_beside and not self.ended:
            return (
                f"{name} trains in a thread that it starts (threading.Thread), which is not "
                "followed; call the function that trains in the main thread"
            )
        if not self.ended and not self.by_hand.are_seen:
            return (
                f"{name} ended without a step of a torch.optim.Optimizer, by which steps are found "
                "while they are timed; predict the script, or let such an optimizer update its "
                "weights"
            )
        if not self.ended:
            return (
                f"{name} ended without a training step: no torch.optim.Optimizer stepped, and no "
                "weights were changed after a backward pass; pass the script that trains, with the "
                "arguments that make it train (after --)"
            )
        return (
            f"{name} ended after {self.ended} of the {STEPS} training steps that are needed; let "
            "it run longer: more epochs, or more data"
        )

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Follow modules and optimizers for as long as the context lasts."""
        init, turns = Optimizer.__init__, self._turns

        def made(optimizer: Optimizer, /, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            turns.made(optimizer)

        with ExitStack() as hooks:
            hooks.enter_context(self.by_hand.on_fake_tensors())
            hooks.enter_context(
                patched(
                    Optimizer,
                    "__init__",
                    made,
                    why="optimizers are followed from when they are made",
                )
            )
            for hook in (
                register_optimizer_step_pre_hook(self._before),
                register_optimizer_step_post_hook(self._after),
                register_module_parameter_registration_hook(self._modules.see),
                register_module_buffer_registration_hook(self._modules.see),
                register_module_module_registration_hook(self._modules.see),
                register_module_forward_pre_hook(self._enter),
            ):
                hooks.callback(hook.remove)
            yield

    def _enter(self, module: torch.nn.Module, args: object) -> None:
        if runs_beside() or runs_apart():
            return
        if torch._C._current_graph_task_id() == -1:
            if torch.is_grad_enabled() and not self._stepping:
                self.by_hand.forward_begins()
            self._backward = False
        self._forward = True
        self._entered(module)

    def _changed_by_hand(self, weights: set[int], known: set[int]) -> None:
        """End the step before, where it changed all weights without an optimizer of PyTorch's."""
        if not self._stepping and self._turns.changed(weights, known):
            self.find_model()
            self._end_step()

    def _before(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        if runs_beside():
            self._trains_beside = True
            return
        begin_search(optimizer)
        self._stepping.append(optimizer)

    def _after(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        if runs_beside():
            return
        self._stepping.pop()
        self.by_hand.end()
        self.optimizer.after(optimizer, args, kwargs)
        if self._turns.stepped(optimizer) and not self._stepping:
            self.find_model()
            self._end_step()

    def _end_step(self) -> None:
        self.ended += 1
        self._forward = self._backward = False
        self._step_ended()


@contextmanager
def as_main(program: Program, batch_size: int | None) -> Iterator[None]:
    """Let Python look as it does to a script: arguments, variables and where modules are found."""
    arguments = [program.path, *program.command_line(batch_size)]
    path = [str(program.folder), *sys.path]
    constant = batch_constant(program.path) if program.by_constant else None
    with (
        patched(sys, "argv", arguments, why="a script reads its own arguments there"),
        patched(sys, "path", path, why="a script imports what is beside it"),
        patch.dict(os.environ, program.environment(batch_size)),
        compiled_with(program.path, constant, batch_size)
        if constant and batch_size
        else nullcontext(),
    ):
        yield
