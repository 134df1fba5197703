"""Answers of ``torch.cuda`` about its allocator, and those that are refused in words.

A script may have the allocator do otherwise: pools of its own, another allocator, memory without
tensors. Nothing here follows that.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from ...core.errors import NotPredictable
from ...gpus import Gpu

Memory = Callable[[], tuple[int, int]]
"""Returns the bytes allocated now, and the most there have been."""

_SYNC_MODES = {"default": 0, "warn": 1, "error": 2}

_POOLS = (
    "memory pools of a script's own (torch.cuda.MemPool) keep memory that others cannot reuse, "
    "which is not traced; predict the script without them to see what its step needs"
)
_OTHER_ALLOCATORS = (
    "another allocator than PyTorch's own (CUDAPluggableAllocator, change_current_allocator) is "
    "not predicted; predict the script without it"
)
_RAW = (
    "memory that a script takes without a tensor (torch.cuda.caching_allocator_alloc) is not "
    "traced; make a tensor of that size instead"
)
_UNCACHED = (
    "PyTorch without its caching allocator (torch.cuda.caching_allocator_enable(False)) is not "
    "predicted; leave it enabled"
)
_GREEN = (
    "a part of the GPU's multiprocessors (torch.cuda.GreenContext) is not predicted; predict the "
    "script without it to see what its step needs"
)
REFUSED: Mapping[str, str] = {
    "use_mem_pool": _POOLS,
    "change_current_allocator": _OTHER_ALLOCATORS,
    "caching_allocator_alloc": _RAW,
    "caching_allocator_delete": _RAW,
    "caching_allocator_disabled": _UNCACHED,
}
"""Functions of ``torch.cuda`` that are refused where a script calls them, with why."""


class _Refusing(type):
    """A class whose use is refused."""

    why: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotPredictable(cls.why)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotPredictable(cls.why)


def _refusing_class(name: str, why: str) -> type:
    try:
        taken = {"__signature__": inspect.signature(getattr(torch.cuda, name))}
    except ValueError:  # builds for CUDA have some in C++, which tell none
        taken = {}
    return _Refusing(name, (), {"why": why, **taken})


REFUSED_CLASSES: Mapping[str, type] = {
    name: _refusing_class(name, why)
    for name, why in {
        "MemPool": _POOLS,
        "CUDAPluggableAllocator": _OTHER_ALLOCATORS,
        "GreenContext": _GREEN,
    }.items()
    if hasattr(torch.cuda, name)  # green contexts are new in 2.10
}
"""Classes that stand in for those of ``torch.cuda`` that are refused."""


def _refusing(why: str) -> Callable[..., NoReturn]:
    def refuse(**_: Any) -> NoReturn:
        raise NotPredictable(why)

    return refuse


def _nested(flat: Mapping[str, int]) -> dict[str, Any]:
    """Statistics by the parts of their names; those that are not known are 0."""
    made: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for name, value in flat.items():
        kind, pool, when = name.split(".")
        made[kind][pool][when] = value
    return made


def memory_answers(gpu: Gpu, memory: Memory) -> dict[str, Callable[..., Any]]:
    """Answers of ``torch.cuda.memory``'s functions, by name; all arguments come by name."""
    chosen: dict[str, Any] = {"fraction": 1.0, "sync": 0}

    def statistics(**_: Any) -> dict[str, int]:
        now, peak = memory()
        known = {"allocated_bytes": (now, peak), "reserved_bytes": (now, peak)}
        return defaultdict(int) | {
            f"{name}.all.{when}": size
            for name, sizes in known.items()
            for when, size in zip(("current", "peak"), sizes, strict=True)
        }

    def enable(value: bool) -> None:
        if not value:
            raise NotPredictable(_UNCACHED)

    return {
        **{name: _refusing(why) for name, why in REFUSED.items()},
        "mem_get_info": lambda **_: (gpu.usable_bytes - memory()[0], gpu.total_bytes),
        "memory_allocated": lambda **_: memory()[0],
        "max_memory_allocated": lambda **_: memory()[1],
        "memory_reserved": lambda **_: memory()[0],
        "max_memory_reserved": lambda **_: memory()[1],
        "memory_cached": lambda **_: memory()[0],
        "max_memory_cached": lambda **_: memory()[1],
        "memory_stats": statistics,
        "memory_stats_as_nested_dict": lambda **_: _nested(statistics()),
        "host_memory_stats": lambda: defaultdict(int),
        "host_memory_stats_as_nested_dict": lambda: _nested({}),
        "get_allocator_backend": lambda: "native",
        "caching_allocator_enable": enable,
        "set_per_process_memory_fraction": lambda fraction, **_: chosen.update(fraction=fraction),
        "get_per_process_memory_fraction": lambda **_: chosen["fraction"],
        "set_sync_debug_mode": lambda debug_mode: chosen.update(
            sync=_SYNC_MODES.get(debug_mode, debug_mode)
        ),
        "get_sync_debug_mode": lambda: chosen["sync"],
    }


def runtime(gpu: Gpu, memory: Memory) -> SimpleNamespace:
    """The result of ``torch.cuda.cudart()``: functions of CUDA's own, none of which fails."""
    done = 0

    def silent(*_: Any) -> int:
        return done

    names = (
        "cudaProfilerStart", "cudaProfilerStop", "cudaProfilerInitialize", "cudaHostRegister",
        "cudaHostUnregister", "cudaStreamCreate", "cudaStreamDestroy",
    )  # fmt: skip
    return SimpleNamespace(
        cudaError=type("cudaError", (int,), {"success": done}),
        cudaGetErrorString=lambda code: f"CUDA error {int(code)}",
        cudaMemGetInfo=lambda _: (gpu.usable_bytes - memory()[0], gpu.total_bytes),
        **dict.fromkeys(names, silent),
    )


def state_of_random_numbers() -> torch.Tensor:
    """A state for ``torch.cuda.get_rng_state``, as long as CUDA's."""
    return torch.zeros(16, dtype=torch.uint8, device="cpu")
