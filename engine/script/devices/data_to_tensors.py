"""Functions that make a tensor of data: of numbers, lists and NumPy's arrays.

C++ copies an array to a GPU past every mode, and fails where there is none. So each makes its
tensor on the host, which is then moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from .device_names import as_device, device_by_name


def tensors_of_data() -> Iterator[tuple[Any, str, Callable[..., torch.Tensor]]]:
    """These functions of PyTorch, and what takes their place where tensors are on a GPU."""
    tensor, as_tensor, asarray = torch.tensor, torch.as_tensor, torch.asarray

    def new(data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
        if isinstance(data, torch.Tensor):
            return tensor(data, device=device_by_name(device), **options)
        return _placed(tensor, data, device, options)

    def as_new(data: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
        if isinstance(data, FakeTensor):  # C++ would copy what is on the GPU already
            return _as_it_is(data, device, dtype)
        return _placed(as_tensor, data, device, {"dtype": dtype})

    def as_array(obj: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
        if isinstance(obj, FakeTensor):
            copied = obj.clone() if options.get("copy") else obj
            found = _as_it_is(copied, device, options.get("dtype"))
            return found.requires_grad_() if options.get("requires_grad") else found
        return _placed(asarray, obj, device, options)

    yield torch, "tensor", new
    yield torch, "as_tensor", as_new
    yield torch, "asarray", as_array


def _as_it_is(data: torch.Tensor, device: Any, dtype: torch.dtype | None) -> torch.Tensor:
    return data.to(device=data.device if device is None else device, dtype=dtype)


def _placed(
    make: Callable[..., torch.Tensor], data: Any, device: Any, options: dict[str, Any]
) -> torch.Tensor:
    """The tensor that a function makes of data, on the host first if it is for the GPU."""
    wanted = _by_default() if device is None else as_device(device)
    if wanted is None or wanted.type != "cuda":
        return make(data, device=wanted, **options)
    trains = options.pop("requires_grad", False)
    moved = make(data, device="cpu", **options).to(wanted)
    return moved.requires_grad_() if trains else moved


def _by_default() -> torch.device | None:
    """The device that tensors are made on where none is named; ``None`` for the host."""
    modes = reversed(_get_current_function_mode_stack())
    return next((mode.device for mode in modes if isinstance(mode, DeviceContext)), None)
