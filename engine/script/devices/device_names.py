"""Devices as code names them, where there is no GPU: by a number, or by a tensor that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import _device_constructors

from .sparse import refused_on_gpu


def as_device(device: Any) -> torch.device:
    """A device as code names it: by a number, a text or itself."""
    return torch.device(device_by_name(device))


class _AnyDevice(type):
    """Stands in for ``torch.device``, which takes a number only where there is a GPU."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _torch_device)

    def __call__(cls, device: Any = None, *index: int, **named: Any) -> torch.device:
        return _torch_device(device_by_name(device), *index, **named)


class _Device(metaclass=_AnyDevice):
    pass


_torch_device = torch.device


def device_by_name(device: Any) -> Any:
    return f"cuda:{device}" if isinstance(device, int) else device


def numbers_as_devices() -> Iterator[tuple[Any, str, Any]]:
    """Functions that take a device, and what takes a number for one in their place."""

    def taking_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if isinstance(kwargs.get("device"), int):
                kwargs["device"] = device_by_name(kwargs["device"])
            return function(*args, **kwargs)

        return call

    def parse_to(*args: Any, **kwargs: Any) -> Any:
        like = kwargs.pop("tensor", None)
        if args and isinstance(args[0], torch.Tensor):
            like, args = args[0], args[1:]
        if like is not None:  # C++ would read that it is on the CPU
            args = (like.device, like.dtype, *args)
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = device_by_name(kwargs["device"])
        return parse(*(device_by_name(value) for value in args[:1]), *args[1:], **kwargs)

    parse, constructors = torch._C._nn._parse_to, _device_constructors()
    yield torch, "device", _Device
    yield torch._C._nn, "_parse_to", parse_to
    for name, function in vars(torch).items():
        if callable(function) and function in constructors:
            sparse = name.startswith("sparse_")
            yield torch, name, (refused_on_gpu if sparse else taking_numbers)(function)
