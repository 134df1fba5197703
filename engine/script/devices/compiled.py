"""``torch.compile`` and TorchScript in a script that is traced: the same code runs uncompiled.

What a compiled step keeps is decided by the compiler, for one GPU, once it runs. So the trace is of
the step as it is written, and says so. TorchScript could not compile what stands in for PyTorch's
functions, either: importing ``torch.distributed.optim`` compiles some that call them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch._dynamo import eval_frame

from ...tracing.flex_attention import compiled
from ...versions.patches import patched

COMPILED = (
    "The script compiles its step (torch.compile). What is predicted is the same step uncompiled: "
    "compiled, it may need less memory or more. Measure it to be sure."
)
SCRIPTED = (
    "The script compiles functions or modules with TorchScript (torch.jit.script). What is "
    "predicted is the same code as it is written: compiled, it may need less memory or more. "
    "Measure it to be sure."
)
_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks on modules"


_entering: set[CodeType] = set()  # of the frames that compiled code is entered by
_notes: list[Callable[[str], None]] = []  # of the traces that run, the innermost one last


@contextmanager
def uncompiled(note: Callable[[str], None]) -> Iterator[None]:
    """Run compiled code as it was written, for as long as the context lasts.

    Args:
        note: Receives :data:`COMPILED` or :data:`SCRIPTED` whenever compiled code runs.
    """
    choose = eval_frame._callback_from_stance
    make = torch.compile

    def choose_eager(callback: Any) -> Any:
        if callback not in (None, False):
            _entering.add(sys._getframe(1).f_code)
            note(COMPILED)
        return choose(callback)

    def make_eager(model: Any = None, *, disable: bool = False, **_: Any) -> Any:
        if not disable and (known := compiled(model)) is not None:
            return known
        # Any other backend may look for a GPU, or take seconds to load; it is never called.
        return make(model, backend="eager", disable=disable)

    def script(obj: Any, *_: Any, **__: Any) -> Any:
        """The function itself, as TorchScript gives it where ``PYTORCH_JIT=0`` switches it off."""
        if isinstance(obj, torch.nn.Module):
            note(SCRIPTED)
        return _noting(obj) if isinstance(obj, FunctionType) else obj

    with (
        torch.compiler.set_stance("force_eager"),
        warnings.catch_warnings(),
        patched(
            eval_frame,
            "_callback_from_stance",
            choose_eager,
            why="compiled code runs as it was written, which has to be noted",
        ),
        patched(
            torch,
            "compile",
            make_eager,
            why="another backend may look for a GPU, or take seconds to load",
        ),
        patched(torch.jit, "script", script, why="compiled code runs as it was written"),
    ):
        warnings.filterwarnings("ignore", message=_HOOKS)
        _notes.append(note)
        try:
            yield
        finally:
            _notes.pop()


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that notes that it would be compiled; libraries have some that never run."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        for note in _notes[-1:]:  # its module may stay loaded after the trace
            note(SCRIPTED)
        return function(*args, **kwargs)

    return called


def runs_compiled() -> bool:
    """Whether the caller's code would be compiled: something above it was given to the compiler."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in _entering:
        frame = frame.f_back
    return frame is not None
