"""What a process takes of a GPU before its first tensor: context, libraries, workspaces."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from engine.benchmarks.gpu.results import FixedCost


@dataclass(frozen=True)
class Counters:
    """The allocator's and the driver's, in bytes; see :class:`FixedCost`."""

    device_used: int
    reserved: int
    allocated: int
    peak_allocated: int


Work = Callable[[str], list[torch.Tensor]]
"""Does some work on a device and returns its tensors, which are freed after they were counted."""


def fixed_costs(device: str, read: Callable[[], Counters]) -> Iterator[FixedCost]:
    """Do one kind of work after the other, and count after each.

    Args:
        device: ``cuda``; on ``cpu`` the same work is done.
        read: The counters, once all work is over; it begins a new peak.

    Yields:
        One kind at a time: what is done between two of them belongs to the next.
    """
    for name, work in _WORK.items():
        tensors = work(device)
        tensor_bytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        del tensors
        gc.collect()
        now = read()
        yield FixedCost(
            after=name,
            device_used_bytes=now.device_used,
            reserved_bytes=now.reserved,
            allocated_bytes=now.allocated,
            peak_allocated_bytes=now.peak_allocated,
            tensor_bytes=tensor_bytes,
        )


def read_cuda() -> Counters:
    """The counters of the current CUDA device, with a new peak begun."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    counters = Counters(
        device_used=total - free,
        reserved=torch.cuda.memory_reserved(),
        allocated=torch.cuda.memory_allocated(),
        peak_allocated=torch.cuda.max_memory_allocated(),
    )
    torch.cuda.reset_peak_memory_stats()
    return counters


def _context(device: str) -> list[torch.Tensor]:
    return [torch.zeros(1, device=device)]


def _product(dtype: torch.dtype, gradient: bool) -> Work:
    def work(device: str) -> list[torch.Tensor]:
        weight = torch.ones(64, 64, device=device, dtype=dtype, requires_grad=gradient)
        product = weight @ weight
        if not gradient:
            return [weight, product]
        product.sum().backward()
        return [weight, product, _gradient(weight)]

    return work


def _convolution(device: str) -> list[torch.Tensor]:
    images = torch.ones(8, 64, 56, 56, device=device)
    layer = torch.nn.Conv2d(64, 64, 3, padding=1, device=device)
    found = layer(images)
    found.sum().backward()
    return [images, layer.weight, found, _gradient(layer.weight)]


def _attention(device: str) -> list[torch.Tensor]:
    options: dict[str, Any] = {"device": device, "dtype": torch.bfloat16, "requires_grad": True}
    query = torch.ones(2, 4, 128, 64, **options)
    found = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    found.sum().backward()
    return [query, found, _gradient(query)]


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.grad is None:
        raise ValueError("backward made no gradient")
    return tensor.grad


_WORK: dict[str, Work] = {
    "CUDA context, one tensor": _context,
    "cuBLAS, fp32 product": _product(torch.float32, gradient=False),
    "cuBLAS, its backward in autograd's thread": _product(torch.float32, gradient=True),
    "cuBLAS, bf16 product and backward": _product(torch.bfloat16, gradient=True),
    "cuDNN, fp32 convolution and backward": _convolution,
    "attention in bf16 and backward": _attention,
}
