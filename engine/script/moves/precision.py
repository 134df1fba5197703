"""Another number format: TF32, or autocasting to bf16."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch

from ...versions.loaded_modules import namespace
from ...versions.patches import patch_for_good
from ..on_import import when_imported

Note = Callable[[str], None]
"""Receives the line of code that makes a move in the script; the first one counts."""

_LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


def use_tf32(note: Note) -> None:
    """Let fp32 matrix products use TF32."""
    torch.set_float32_matmul_precision("high")
    note('torch.set_float32_matmul_precision("high")')


class Bf16:
    """Autocasting to bf16, by the script's framework or around its forward pass and its loss.

    A framework is asked by an argument of its own, since each casts outputs in its own way.

    Args:
        device: Type of the device that autocasts.
        note: Takes the line that does it in the script.
    """

    def __init__(self, device: str, note: Note) -> None:
        self._device, self._note = device, note
        self._by_framework = False
        self._autocasting: torch.autocast | None = None
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
                why="autocasting to bf16 ends where the backward pass begins",
            )

    def before_forward(self) -> None:
        """A module that is trained runs its forward pass."""
        is_casting = self._autocasting is not None or torch.is_autocast_enabled(self._device)
        if self._by_framework or is_casting:
            return
        self._note(f'with torch.autocast("{self._device}", dtype=torch.bfloat16):  # {_AROUND}')
        self._autocasting = torch.autocast(self._device, dtype=torch.bfloat16)
        self._autocasting.__enter__()

    def end(self) -> None:
        """Forward pass and loss have ended."""
        if self._autocasting is not None:
            self._autocasting.__exit__(None, None, None)
            self._autocasting = None

    def _ending(self, differentiate: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(differentiate)
        def ended(*args: Any, **kwargs: Any) -> Any:
            self.end()
            return differentiate(*args, **kwargs)

        return ended

    def _asked(self, line: str) -> None:
        self._by_framework = True
        self._note(line)

    def _ask_transformers(self) -> None:
        arguments = namespace("transformers.training_args")["TrainingArguments"]
        check = arguments.__post_init__

        def checked(given: Any) -> None:
            given.bf16, given.fp16 = True, False
            self._asked("TrainingArguments(bf16=True)")
            check(given)

        patch_for_good(
            arguments, "__post_init__", checked, why="bf16 is tried in a script as it is"
        )

    def _ask_accelerate(self) -> None:
        self._ask(
            namespace("accelerate.accelerator")["Accelerator"],
            {"mixed_precision": "bf16"},
            'Accelerator(mixed_precision="bf16")',
        )

    def _ask_lightning(self, module: str) -> None:
        self._ask(
            namespace(module)["Trainer"],
            {"precision": "bf16-mixed"},
            'Trainer(precision="bf16-mixed")',
        )

    def _ask(self, owner: type, arguments: dict[str, str], line: str) -> None:
        """Let a class be made with these arguments, whatever it is given for them."""
        init = owner.__init__  # type: ignore[misc]  # each of these takes them by name

        @wraps(init)
        def made(made_one: Any, *args: Any, **kwargs: Any) -> None:
            self._asked(line)
            init(made_one, *args, **kwargs | arguments)

        patch_for_good(owner, "__init__", made, why="bf16 is tried in a script as it is")


_AROUND = "around forward pass and loss"
