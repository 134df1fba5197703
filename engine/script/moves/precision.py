"""Another number format: TF32, or autocasting to bf16 or fp16."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch

from ...versions.loaded_modules import namespace
from ...versions.patches import patch_for_good
from ..on_import import when_imported
from .kinds import ScriptMove
from .loss_scaling import LossScaling

Note = Callable[[str], None]
"""Receives the line of code that makes a move in the script; the first one counts."""

_FORMATS = {ScriptMove.BF16: torch.bfloat16, ScriptMove.FP16: torch.float16}
_OF_LIGHTNING = {ScriptMove.BF16: "bf16-mixed", ScriptMove.FP16: "16-mixed"}
_LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


def use_tf32(note: Note) -> None:
    """Let fp32 matrix products use TF32."""
    torch.set_float32_matmul_precision("high")
    note('torch.set_float32_matmul_precision("high")')


class Autocasting:
    """Autocasting, by the script's framework or around its forward pass and its loss.

    A framework is asked by an argument of its own, since each casts outputs in its own way. In
    fp16, losses are scaled.

    Args:
        move: The number format.
        device: Type of the device that autocasts.
        note: Takes the line that does it in the script.
    """

    def __init__(self, move: ScriptMove, device: str, note: Note) -> None:
        self._move, self._device, self._note = move, device, note
        self._by_framework = False
        self._scaling = LossScaling(device) if move is ScriptMove.FP16 else None
        self._context: torch.autocast | None = None
        when_imported(
            {
                "transformers.training_args": self._ask_transformers,
                "accelerate.accelerator": self._ask_accelerate,
            }
            | {name: partial(self._ask_lightning, name) for name in _LIGHTNING}
        )
        for name in ("backward", "grad"):
            patch_for_good(
                torch.autograd,
                name,
                self._ending(getattr(torch.autograd, name)),
                why="autocasting ends where the backward pass begins",
            )

    def before_forward(self) -> None:
        """A module that is trained runs its forward pass."""
        is_casting = self._context is not None or torch.is_autocast_enabled(self._device)
        if self._by_framework or is_casting:
            return
        around = f'with torch.autocast("{self._device}", dtype={_FORMATS[self._move]}):'
        scaled = "" if self._scaling is None else ", the loss scaled by torch.amp.GradScaler"
        self._note(f"{around}  # around forward pass and loss{scaled}")
        self._context = torch.autocast(self._device, dtype=_FORMATS[self._move])
        self._context.__enter__()

    def end(self) -> None:
        """Forward pass and loss have ended."""
        if self._context is not None:
            self._context.__exit__(None, None, None)
            self._context = None

    def step_ended(self) -> None:
        """A training step has ended, perhaps without a backward pass, as with ``torch.func``."""
        self.end()
        if self._scaling is not None:
            self._scaling.step_ended()

    def _ending(self, differentiate: Callable[..., Any]) -> Callable[..., Any]:
        is_whole = differentiate.__name__ == "backward"

        @wraps(differentiate)
        def ended(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if is_whole or not kwargs.get("create_graph"):  # else it is a part of the loss
                self.end()
            if is_whole and self._scaling is not None and not self._by_framework:
                outputs = self._scaling.scaled(outputs)
            return differentiate(outputs, *args, **kwargs)

        return ended

    def _asked(self, line: str) -> None:
        self._by_framework = True
        self._note(line)

    def _ask_transformers(self) -> None:
        arguments = namespace("transformers.training_args")["TrainingArguments"]
        check = arguments.__post_init__

        def checked(given: Any) -> None:
            given.bf16, given.fp16 = self._move is ScriptMove.BF16, self._move is ScriptMove.FP16
            self._asked(f"TrainingArguments({self._move}=True)")
            check(given)

        patch_for_good(
            arguments, "__post_init__", checked, why="a number format is tried in a script"
        )

    def _ask_accelerate(self) -> None:
        owner = namespace("accelerate.accelerator")["Accelerator"]
        self._ask(owner, "mixed_precision", str(self._move))

    def _ask_lightning(self, module: str) -> None:
        self._ask(namespace(module)["Trainer"], "precision", _OF_LIGHTNING[self._move])

    def _ask(self, owner: type, argument: str, value: str) -> None:
        """Let a class be made with this argument, whatever it is given for it."""
        init = owner.__init__  # type: ignore[misc]  # each of these takes it

        @wraps(init)
        def made(made_one: Any, *args: Any, **kwargs: Any) -> None:
            self._asked(f'{owner.__name__}({argument}="{value}")')
            given = inspect.signature(init).bind(made_one, *args, **kwargs)
            given.arguments[argument] = value
            init(*given.args, **given.kwargs)

        patch_for_good(owner, "__init__", made, why="a number format is tried in a script")
