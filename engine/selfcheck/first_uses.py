"""Memory of context, libraries and workspaces before the first tensor of a step.

Each kind of work is done once, in one process, and the counters are read after it: what they have
grown by is what that kind of work loads.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from ..gpus.checked import FirstUse, FixedCost
from ..measurement import cuda
from ..measurement.protocol import DeviceFacts

_WORK_BEFORE_FACTS = 3
# The engine reads the device facts after context and cuBLAS have taken their memory.


@dataclass(frozen=True)
class Counters:
    """The allocator's and the driver's, in bytes; see :class:`~engine.gpus.checked.FixedCost`."""

    device_used: int
    reserved: int
    allocated: int
    peak_allocated: int


Work = Callable[[str], list[torch.Tensor]]
"""Does some work on a device and returns its tensors, which are counted, then freed."""


def facts_and_costs() -> tuple[DeviceFacts, tuple[FixedCost, ...]]:
    """The CUDA device as a trial finds it, and its fixed costs by kind of work.

    Only a process that has not touched CUDA before measures them right.
    """
    costs = fixed_costs("cuda", read_cuda)
    before = tuple(islice(costs, _WORK_BEFORE_FACTS))
    facts = cuda.facts()
    return facts, before + tuple(costs)


def fixed_costs(device: str, read: Callable[[], Counters]) -> Iterator[FixedCost]:
    """Do one kind of work after another, and read the counters after each.

    Args:
        device: ``cuda``; the work also runs on ``cpu``.
        read: Returns the counters once all work is over, and starts a new peak.

    Yields:
        One cost at a time. What the caller does in between counts towards the next.
    """
    for kind, work in _FIRST_USES.items():
        tensors = work(device)
        tensor_bytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        del tensors
        gc.collect()
        now = read()
        yield FixedCost(
            after=kind,
            device_used_bytes=now.device_used,
            reserved_bytes=now.reserved,
            allocated_bytes=now.allocated,
            peak_allocated_bytes=now.peak_allocated,
            tensor_bytes=tensor_bytes,
        )


def read_cuda() -> Counters:
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


def _linear(device: str) -> list[torch.Tensor]:
    layer = torch.nn.Linear(64, 64, device=device)
    with torch.no_grad():
        return [layer.weight, layer(layer.weight)]


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
        raise ValueError("backward computed no gradient")
    return tensor.grad


_FIRST_USES: dict[FirstUse, Work] = {
    FirstUse.CONTEXT: _context,
    FirstUse.PRODUCT: _product(torch.float32, gradient=False),
    FirstUse.BACKWARD: _product(torch.float32, gradient=True),
    FirstUse.LINEAR: _linear,
    FirstUse.HALF: _product(torch.bfloat16, gradient=True),
    FirstUse.CONVOLUTION: _convolution,
    FirstUse.ATTENTION: _attention,
}
