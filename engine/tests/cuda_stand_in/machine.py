"""The GPU of this stand-in: its memory, its clock and what ``torch.cuda`` says of it."""

from __future__ import annotations

import time
import weakref
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

import torch

from engine.allocator.caching import AllocatorOutOfMemory, CachingAllocator
from engine.gpus import GPUS
from engine.script.devices.cuda_device import DeviceMode, on_gpu, placing_tensors
from engine.script.devices.cuda_functions import catalogue_gpu
from engine.script.devices.device_properties import DeviceProperties
from engine.script.devices.streams import Event as DoneEvent
from engine.tracing.operations import tensors_in

GPU = GPUS["a10"]
GPU_UUID = UUID("123e4567-e89b-12d3-a456-426614174000")


class GpuMemory(DeviceMode):
    """Serves each storage on the GPU from a caching allocator, which keeps a history."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = CachingAllocator(GPU.usable_bytes)
        self.history: list[dict[str, Any]] = []
        self.failures = 0
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = super().handle(func, args, kwargs)
        for tensor in tensors_in(output):
            if on_gpu(tensor):
                self._hold(tensor.untyped_storage())
        return output

    def limit(self, share: float) -> None:
        """Let the allocator reserve no more than a share of the GPU's memory."""
        self.allocator._capacity = int(share * GPU.total_bytes)

    def device_used_bytes(self) -> int:
        """Memory in use, as the driver reports it."""
        return GPU.context_bytes + self.allocator.reserved_bytes

    def _hold(self, storage: torch.UntypedStorage) -> None:
        key, size, address = storage._cdata, storage.nbytes(), storage.data_ptr()
        if key in self._alive:
            return
        try:
            handle = self.allocator.allocate(size)
        except AllocatorOutOfMemory as error:
            self.failures += 1
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. GPU 0 has a total "
                f"capacity of {GPU.total_bytes / 2**30:.2f} GiB"
            ) from error

        def left(_: object) -> None:
            del self._alive[key]
            self.allocator.free(handle)
            self._note("free_requested", address, size)

        self._alive[key] = weakref.ref(storage, left)
        self._note("alloc", address, size)

    def _note(self, action: str, address: int, size: int) -> None:
        if size:
            self.history.append({"action": action, "addr": address, "size": size})


class Event(DoneEvent):
    """A CUDA event that tells the time: all work is done at once."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._seconds = 0.0

    def record(self, stream: object = None) -> None:
        self._seconds = time.perf_counter()

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds."""
        return 1000 * float(end_event._seconds - self._seconds)


def _functions(memory: GpuMemory) -> dict[str, Any]:
    """``torch.cuda``'s functions by name, as far as the engine asks them about memory and time."""
    allocator = memory.allocator
    properties = replace(DeviceProperties.of(GPU), uuid=GPU_UUID)

    def moves() -> dict[str, int]:
        allocated = sum(entry["action"] == "alloc" for entry in memory.history)
        return {"allocated": allocated, "freed": len(memory.history) - allocated}

    return {
        "get_device_properties": lambda *_: properties,
        "max_memory_allocated": lambda *_: allocator.peak_allocated_bytes,
        "max_memory_reserved": lambda *_: allocator.peak_reserved_bytes,
        "memory_allocated": lambda *_: allocator.allocated_bytes,
        "memory_reserved": lambda *_: allocator.reserved_bytes,
        "memory_stats": lambda *_: {
            "num_alloc_retries": allocator.retries,
            "num_ooms": memory.failures,
        },
        "memory_stats_as_nested_dict": lambda *_: {"allocation": {"all": moves()}},
        "mem_get_info": lambda *_: (
            GPU.total_bytes - memory.device_used_bytes(),
            GPU.total_bytes,
        ),
        "set_per_process_memory_fraction": lambda share, *_: memory.limit(share),
        "_record_memory_history": lambda *_, **__: memory.history.clear(),
        "_snapshot": lambda *_: {"device_traces": [memory.history]},
        "Event": Event,
    }


_appeared = ExitStack()
"""It is kept: a context that nothing refers to ends."""


def appear() -> None:
    """Let this process have the GPU from now on."""
    stack, memory = _appeared, GpuMemory()
    stack.enter_context(catalogue_gpu(GPU, lambda: (0, 0)))
    functions = _functions(memory)
    for module in (torch.cuda, torch.cuda.memory):
        for name in functions.keys() & vars(module).keys():
            stack.enter_context(patch.object(module, name, functions[name]))
    stack.enter_context(placing_tensors([torch.Tensor], memory))
