"""Files that a script writes by ``torch.save``: it can load them again, and they cost nothing.

Tensors without values are written as holes, so that a checkpoint takes no room. Of a real run, what
is saved before its first step counts as data, and is written; all else is time that was not asked
for.
"""

from __future__ import annotations

import os
import pickle
from contextlib import ExitStack, suppress
from types import FunctionType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ...versions.patches import patch_code, patch_for_good
from .scratch import Scratch

_NAME = "_memorymark_save"
_NOT_WRITTEN = (OSError, pickle.PicklingError, AttributeError, NotImplementedError, TypeError)


class SavedFiles:
    """The work of ``torch.save`` from now on, for as long as the process lives.

    Args:
        scratch: The files of the script.

    Attributes:
        are_data: Whether what real tensors hold is written, too.
    """

    def __init__(self, scratch: Scratch) -> None:
        self.are_data = True
        self._scratch = scratch
        given: Any = torch.save
        self._save: Any = FunctionType(
            given.__code__, given.__globals__, closure=given.__closure__, argdefs=given.__defaults__
        )
        self._save.__kwdefaults__ = given.__kwdefaults__
        patch_for_good(
            torch.serialization,
            _NAME,
            self._saved,
            why="a script that is traced finds what it saved, and writes no values",
        )
        patch_code(given, _call_by_name, why="modules that imported it by name do the same")

    def _saved(self, value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        modes = _get_current_dispatch_mode_stack()
        is_traced = any(isinstance(mode, FakeTensorMode) for mode in modes)
        is_path = isinstance(file, str | os.PathLike)
        path = file if is_path else getattr(file, "name", None)
        if path is None or not (is_traced or self.are_data):
            return
        # The script may never read it: what cannot be written is missed where it does.
        with suppress(RuntimeError, *_NOT_WRITTEN), ExitStack() as stack:
            if is_traced:
                holes = torch.serialization.skip_data(materialize_fake_tensors=True)
                stack.enter_context(holes)
            place = self._scratch.path_to_save(path) if is_path else path
            self._save(value, str(place), *args, **kwargs)


def _call_by_name(*args: Any, **kwargs: Any) -> Any:
    """Stands for ``torch.save``, among whose names it finds what to do."""
    return _memorymark_save(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821
