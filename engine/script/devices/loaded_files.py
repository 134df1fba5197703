"""Files that ``torch.load`` reads, such as the checkpoint that a script goes on from.

PyTorch reads no content of a file on fake tensors, and gives what it loads a device without making
it there: nothing would be counted, and a device of CUDA's own would not go with places that are
noted (:mod:`.cuda_device`). So each storage of the file is made where it would be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
import torch._utils

from ...versions.patches import patched
from .cuda_device import CPU, CUDA
from .device_names import as_device

_HOOK = "_restore_device_fake_mode"
_load: Any = torch.load


@contextmanager
def made_where_they_are_loaded() -> Iterator[None]:
    """Let what is loaded be made in its place, for as long as the context lasts."""
    made: dict[int, torch.Tensor] = {}

    @wraps(_load)
    def load(*args: Any, **kwargs: Any) -> Any:
        made.clear()
        try:
            return _load(*args, **kwargs)
        finally:
            made.clear()

    with ExitStack() as stack:
        stack.enter_context(
            patched(
                torch._utils,
                _HOOK,
                partial(_made_in_its_place, made),
                why="what is loaded is made in its place, so that it counts there",
                is_missing_in_some=True,
            )
        )
        for module in (torch, torch.serialization):
            stack.enter_context(
                patched(
                    module, "load", load, why="tensors share the storages of one file, not of two"
                )
            )
        yield


def _made_in_its_place(made: dict[int, torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the sizes of one that was read from a file.

    Args:
        made: The storages of this file so far, by their place in it.
        tensor: PyTorch makes each with a storage of its own.
    """
    storage: Any = tensor.untyped_storage()
    saved = getattr(storage, "_fake_device", None)
    if saved is None:  # read where tensors are real
        return tensor
    whole = made.get(storage._checkpoint_offset)
    if whole is None:
        count = storage.nbytes() // tensor.element_size()
        whole = torch.empty(count, dtype=tensor.dtype, device=_location(str(saved)))
        made[storage._checkpoint_offset] = whole
    same = whole.view(tensor.dtype).as_strided(
        tensor.size(), tensor.stride(), tensor.storage_offset()
    )
    return same.requires_grad_(tensor.requires_grad)


def _location(saved: str) -> torch.device:
    """Where a storage goes that was saved from a place, such as ``cuda:0``."""
    mapped: Any = torch.serialization._serialization_tls.map_location
    if isinstance(mapped, dict):
        mapped = mapped.get(saved)
    elif callable(mapped) and not isinstance(mapped, torch.device):
        put = mapped(_Storage(CPU), saved)
        mapped = None if put is None else put.device
    return as_device(saved if mapped is None else mapped)


class _Storage:
    """A storage for a function that is given as ``map_location``, which puts it somewhere."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def cuda(self, device: Any = None, *_: Any, **__: Any) -> _Storage:
        return _Storage(CUDA if device is None else as_device(device))

    def cpu(self) -> _Storage:
        return _Storage(CPU)
