"""Tensors that are made of others, such as quantized ones: they have the place of their parts.

PyTorch makes them on the device of their parts. There is no GPU, so they are made on the CPU, and
answer by where their parts are. They move as their class does it, part by part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch

from ...tracing.operator_mode import is_made_of_others
from ...versions.patches import patched
from .cuda_device import CPU, CUDA, device_of, wanted_place
from .device_names import as_device

_device: Any = torch._C.TensorBase.device
_make: Any = torch.Tensor._make_wrapper_subclass
_to: Any = torch.Tensor.to
_cuda: Any = torch.Tensor.cuda


@contextmanager
def placed_by_parts() -> Iterator[None]:
    """Let them have the place of their parts, for as long as the context lasts."""
    stand_ins: dict[str, Any] = {
        "device": property(_device_of_any),
        "is_cuda": property(lambda tensor: _device_of_any(tensor).type == "cuda"),
        "is_cpu": property(lambda tensor: _device_of_any(tensor).type == "cpu"),
        "_make_wrapper_subclass": staticmethod(_make_on_the_host),
    }
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(
                patched(
                    torch.Tensor,
                    name,
                    stand_in,
                    why="tensors that are made of others have the place of those",
                )
            )
        yield


def moved_by_parts(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to``, of a tensor that is made of others."""
    wanted, given = wanted_place(args, kwargs)
    if wanted is not None:  # without a number, PyTorch would ask the driver for it
        given["device"] = CUDA if wanted.type == "cuda" else wanted
    return _by_its_class(tensor, _to, {k: v for k, v in given.items() if v is not None})


def cuda_by_parts(tensor: torch.Tensor, device: Any = None, **kwargs: Any) -> torch.Tensor:
    """``Tensor.cuda``, of a tensor that is made of others."""
    return _by_its_class(tensor, _cuda, {"device": CUDA, **kwargs})


def _by_its_class(tensor: torch.Tensor, method: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """Move a tensor as its class does it.

    PyTorch would tell the class the method that has the name now, which the class does not know.
    """
    kind = type(tensor)
    return cast(torch.Tensor, kind.__torch_function__(method, (kind,), (tensor,), kwargs))


def _device_of_any(tensor: torch.Tensor) -> torch.device:
    if is_made_of_others(type(tensor)):
        return device_of(tensor)
    return cast(torch.device, _device.__get__(tensor))


def _make_on_the_host(
    kind: type, size: Any, *args: Any, device: Any = None, **kwargs: Any
) -> torch.Tensor:
    there = None if device is None else as_device(device)
    if there is not None and there.type == "cuda":
        there = CPU
    return cast(torch.Tensor, _make(kind, size, *args, device=there, **kwargs))
