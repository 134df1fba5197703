"""Data that the code which loads them puts on the GPU, as ``x.to(device)`` in ``__getitem__``.

Data are real tensors while they are loaded, and so is what they leave behind, such as a window in a
cache. Where they are put on the GPU, their place is noted as that of fake tensors; other than that,
they answer as what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch

from ...tracing.operator_mode import is_made_of_others
from ...versions.patches import patched
from .cuda_device import modes_of_places, moved_to, to_cuda, wanted_place
from .made_of_others import cuda_by_parts, moved_by_parts

_to: Any = torch.Tensor.to
_cuda: Any = torch.Tensor.cuda


@contextmanager
def data_on_the_gpu() -> Iterator[None]:
    """Let real tensors be put on the GPU wherever places are noted."""
    with ExitStack() as stack:
        for name, method in {"to": _moved, "cuda": _moved_to_cuda}.items():
            stack.enter_context(
                patched(torch.Tensor, name, method, why="C++ would look for a GPU to put data on")
            )
        yield


def _moved(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to``, of tensors that have no such method of their own."""
    if is_made_of_others(type(tensor)):
        return moved_by_parts(tensor, *args, **kwargs)
    if _is_followed(tensor):
        wanted, _ = wanted_place(args, kwargs)
        if wanted is not None and wanted.type == "cuda":
            return moved_to(tensor, *args, **kwargs)
    return cast(torch.Tensor, _to(tensor, *args, **kwargs))


def _moved_to_cuda(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.cuda``, of tensors that have no such method of their own."""
    if is_made_of_others(type(tensor)):
        return cuda_by_parts(tensor, *args, **kwargs)
    if _is_followed(tensor):
        return to_cuda(tensor, *args, **kwargs)
    return cast(torch.Tensor, _cuda(tensor, *args, **kwargs))


def _is_followed(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and bool(modes_of_places())
