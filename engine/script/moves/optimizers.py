"""PyTorch's optimizers with their fused kernels."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ...versions.patches import patch_for_good
from .kinds import FUSED
from .precision import Note


def use_fused(note: Note) -> None:
    """Let these optimizers be made with their fused kernel."""
    for name in FUSED:
        kind = getattr(torch.optim, name)
        patch_for_good(
            kind,
            "__init__",
            _fused(name, kind.__init__, note),
            why="a fused optimizer is tried in a script as it is",
        )


def _fused(name: str, init: Callable[..., None], note: Note) -> Callable[..., None]:
    @wraps(init)
    def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(init).bind(optimizer, *args, **kwargs)
        if not given.arguments.get("fused"):  # AdamW makes itself as an Adam
            note(_line(name, sys._getframe(1).f_globals.get("__name__", "")))
        given.arguments |= {"fused": True, "foreach": None}
        init(*given.args, **given.kwargs)

    return made


def _line(name: str, made_in: str) -> str:
    if made_in.startswith("transformers.") and name == "AdamW":
        return 'TrainingArguments(optim="adamw_torch_fused")'
    return f"torch.optim.{name}(..., fused=True)"
