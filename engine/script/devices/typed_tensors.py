"""Types of tensors by name, as code older than ``torch.device`` has them.

``torch.cuda.FloatTensor(3, 4)`` makes a tensor on the GPU, ``torch.set_default_tensor_type`` has
all of them made there, and both only work where PyTorch finds a GPU. Here they make what their
twins on the host do, and put it in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ...versions.patches import patched

_GPU = torch.device("cuda", 0)

_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


class _OnGpu(type):
    """A type of tensors on the GPU: it makes them, and tells which are of it."""

    dtype: torch.dtype

    def __call__(cls, *given: Any, **named: Any) -> torch.Tensor:
        named.pop("device", None)
        if given and not named and all(isinstance(one, int) for one in given):
            return torch.empty(given, dtype=cls.dtype, device=_GPU)
        made: torch.Tensor = getattr(torch, cls.__name__)(*given, **named)
        return made.to(_GPU)

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype is cls.dtype
        )


def tensor_type_name(kind: Any) -> str:
    """Name of a type of tensors, as ``torch.cuda.FloatTensor``, of itself or its name."""
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"


@contextmanager
def types_on_the_gpu() -> Iterator[None]:
    """Let ``torch.cuda`` have its types of tensors, for as long as the context lasts."""
    set_default = torch.set_default_tensor_type

    def set_default_type(t: Any, /) -> None:
        name = tensor_type_name(t)
        set_default(name.replace(".cuda", ""))
        torch.set_default_device(_GPU if ".cuda." in name else None)

    with ExitStack() as stack:
        for name, dtype in _DTYPES.items():
            members = {"dtype": dtype, "__module__": "torch.cuda"}
            made = _OnGpu(name, (), members)
            stack.enter_context(
                patched(torch.cuda, name, made, why="PyTorch's own need a GPU to make a tensor")
            )
        stack.enter_context(
            patched(
                torch,
                "set_default_tensor_type",
                set_default_type,
                why="the types of CUDA are refused where there is none",
            )
        )
        yield
