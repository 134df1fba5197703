"""Files that ``torch.load`` reads, such as the checkpoint that a script goes on from.

PyTorch reads no content of a file on fake tensors, and gives what it loads a device without making
it there: nothing would be counted, and a device of CUDA's own would not go with places that are
noted (:mod:`.cuda_device`). So each storage of the file is made where it would be loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
import torch._utils

from ...core.errors import NotPredictable
from ...versions.patches import patched
from .cuda_device import CPU, CUDA
from .device_names import as_device

_HOOK = "_restore_device_fake_mode"
_load: Any = torch.load
_get_restore_location: Any = torch.serialization._get_restore_location


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
        stack.enter_context(
            patched(
                torch.serialization,
                "_get_restore_location",
                _restoring,
                why="PyTorch 2.6 would put what has no content on a GPU that is not there",
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
        element = tensor.element_size()
        # Formats without a storage of their own are saved as bytes.
        saved_as = 1 if tensor.dtype in torch.storage._new_dtypes() else element
        count = storage.nbytes() // (element * saved_as if _squares_sizes() else element)
        whole = torch.empty(count, dtype=tensor.dtype, device=_location(str(saved)))
        made[storage._checkpoint_offset] = whole
    same = whole.view(tensor.dtype).as_strided(
        tensor.size(), tensor.stride(), tensor.storage_offset()
    )
    return same.requires_grad_(tensor.requires_grad)


def _squares_sizes() -> bool:
    """Whether a storage without content gets its bytes times the size of an element.

    PyTorch 2.6 to 2.10 take the number of its bytes for that of its elements; 2.13 does not.
    """
    (load_tensor,) = (
        code
        for code in torch.serialization._load.__code__.co_consts
        if getattr(code, "co_name", "") == "load_tensor"
    )
    return "_element_size" in load_tensor.co_names


def _restoring(map_location: Any) -> Callable[[Any, str], Any]:
    """``torch.serialization._get_restore_location``, which refuses to put on a GPU what is empty.

    Only PyTorch 2.6 asks where a storage without content goes. It makes one anew for each tensor
    that shares it, so those on a GPU would count too often.
    """
    restore = _get_restore_location(map_location)

    def restored(storage: Any, saved: str) -> Any:
        if storage.device.type == "meta" and _location(saved).type == "cuda":
            raise NotPredictable(
                "torch.load of PyTorch 2.6 puts nothing on a GPU that is not there; predict with "
                "PyTorch 2.7 or newer, load with map_location='cpu', or measure it"
            )
        return restore(storage, saved)

    return restored


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
