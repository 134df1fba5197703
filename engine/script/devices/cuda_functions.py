"""``torch.cuda`` as on a machine with a catalogue GPU.

Its functions answer for that GPU, streams and events do nothing, and ``torch.autocast("cuda")``
sets the state of autocasting on the CPU, since that is where the dispatcher sees every tensor, and
where :mod:`engine.tracing.lowering` has put CUDA's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch

from ...core.errors import NotPredictable
from ...gpus import Gpu
from ...versions.patches import patched, taking_the_same
from .cuda_device import CUDA
from .cuda_memory import (
    REFUSED_CLASSES,
    Memory,
    memory_answers,
    runtime,
    state_of_random_numbers,
)
from .device_properties import DeviceProperties
from .process_group import gpus_here
from .streams import AnyEvent, Event, ExternalStream, Stream, set_stream
from .typed_tensors import types_on_the_gpu

_CUDA_VERSION = "12.8"
"""Value of ``torch.version.cuda`` where a build has none: code asks only whether it is recent."""
_NCCL_VERSION = (2, 27, 5)
"""Value of ``torch.cuda.nccl.version()``, for the same reason."""


class _Current:
    """``torch.cuda.device(…)``, on a machine with one GPU."""

    def __init__(self, device: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _CurrentOf(_Current):
    """``torch.cuda.device_of(…)``."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj)


class _CurrentIndex(_Current):
    """``torch.accelerator.device_index(…)``."""

    def __init__(self, device: int | None, /) -> None:
        super().__init__(device)


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]  # a metaclass known at run time
    """Takes PyTorch's own generators for instances as well."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):
    """A generator of random numbers that may say it is on the GPU."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        return super().__new__(cls)

    def __init__(self, device: Any = "cpu") -> None:
        self._device = torch.device(device)

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # it is one there too
        """Device where it would be."""
        return CUDA if self._device.type == "cuda" else self._device


class CapturedGraph:
    """Stands in for ``torch.cuda.CUDAGraph``, which is refused."""

    def __init__(self, keep_graph: bool = False) -> None:
        raise NotPredictable(
            "CUDA graphs (torch.cuda.graph, make_graphed_callables) keep memory of their own, "
            "which is not traced; predict the script without them to see what its step needs"
        )


_SENSORS = (
    "utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used"
)  # fmt: skip
"""Functions that ask the driver how the GPU is doing."""

_PROFILERS = {
    torch.cuda.nvtx: ("range_push", "range_pop", "mark", "range_start", "range_end"),
    torch.cuda.profiler: ("init", "start", "stop"),
}

_CLASSES = {
    "Stream": Stream,
    "ExternalStream": ExternalStream,
    "Event": Event,
    "device": _Current,
    "device_of": _CurrentOf,
    "device_index": _CurrentIndex,
    **REFUSED_CLASSES,
}
"""``torch.cuda``'s classes by name."""


def _answers(gpu: Gpu, memory: Memory, stream: Stream) -> dict[str, Callable[..., Any]]:
    """Answers of ``torch.cuda``'s functions, by name; ``stream`` is the default one.

    All arguments come by name, as :func:`taking_the_same` has it.
    """
    properties = DeviceProperties.of(gpu)

    def constant(value: Any) -> Callable[..., Any]:
        return lambda **_: value

    constants = {
        "is_available": True,
        "_is_compiled": True,
        "is_initialized": True,
        "device_count": gpus_here(),
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties,
        "get_arch_list": [f"sm_{properties.major}{properties.minor}"],
        "is_tf32_supported": properties.major >= 8,
        "is_current_stream_capturing": False,
        "default_stream": stream,
        "memory_summary": "",
        "memory_snapshot": [],
        "initial_seed": 0,
        "current_accelerator": torch.device("cuda"),
        "current_device_index": 0,
        "list_gpu_processes": "",
        "can_device_access_peer": True,
        "current_blas_handle": 0,
        "current_solver_handle": 0,
        "graph_pool_handle": (0, 1),
        **dict.fromkeys(_SENSORS, 0),
    }
    silent = (
        "init", "_lazy_init", "set_device", "synchronize", "ipc_collect", "empty_cache",
        "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
        "reset_accumulated_memory_stats", "reset_accumulated_host_memory_stats",
        "reset_peak_host_memory_stats", "check_error",
        "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all",
        "_lazy_call", "set_device_index", "_record_memory_history",
        "_dump_snapshot",
    )  # fmt: skip
    return {
        **{name: constant(value) for name, value in constants.items()},
        # A function for each: torch.compile looks functions up by identity, and refuses doubles.
        **{name: constant(None) for name in silent},
        "is_bf16_supported": lambda including_emulation=True: (
            including_emulation or properties.major >= 8
        ),
        **memory_answers(gpu, memory),
        "get_rng_state": lambda **_: state_of_random_numbers(),
        "get_rng_state_all": lambda: [state_of_random_numbers()],
        "get_stream_from_external": lambda data_ptr, **_: ExternalStream(data_ptr),
        "current_stream": lambda **_: torch.cpu.current_stream(),
        "set_stream": set_stream,
        "stream": lambda stream: stream or nullcontext(),
    }


def _joined(
    tensors: Sequence[torch.Tensor], dim: int, destination: int | str | None, **_: Any
) -> torch.Tensor:
    """``comm.gather``, as ``nn.DataParallel`` brings gradients back to where its inputs were.

    -1 is the host. Source: torch/csrc/cuda/comm.cpp.
    """
    joined = torch.cat(list(tensors), dim)
    return joined.cpu() if destination in (-1, "cpu") else joined


@contextmanager
def catalogue_gpu(gpu: Gpu, memory: Memory) -> Iterator[None]:
    """Let ``torch.cuda`` answer for this GPU, for as long as the context lasts.

    Args:
        gpu: A catalogue GPU.
        memory: Source of its memory statistics.
    """
    default = Stream()
    answers = _answers(gpu, memory, default)

    def replace_function(module: ModuleType, name: str, function: Callable[..., Any]) -> None:
        if name in vars(module):
            same = taking_the_same(vars(module)[name], function)
            stack.enter_context(
                patched(module, name, same, why="torch.cuda answers for the catalogue's GPU")
            )

    with ExitStack() as stack:
        cuda = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.graphs)
        for module in (*cuda, torch.accelerator):
            for name, function in answers.items():
                replace_function(module, name, function)
            for name in _CLASSES.keys() & vars(module).keys():
                stack.enter_context(
                    patched(
                        module,
                        name,
                        _CLASSES[name],
                        why="streams and events of a machine without CUDA cannot be made",
                    )
                )
        for module, names in _PROFILERS.items():
            for name in names:
                replace_function(module, name, lambda **_: 0)
        replace_function(torch.cuda.nccl, "version", lambda: _NCCL_VERSION)
        replace_function(torch.nn.parallel.comm, "scatter", lambda tensor, **_: (tensor.cuda(),))
        replace_function(torch.nn.parallel.comm, "gather", _joined)
        for owner, name, value in (
            (torch.backends.cuda, "is_built", lambda: True),
            (torch.backends.mps, "is_available", lambda: False),
            (torch.cpu, "_current_stream", default),
            (torch._C, "_get_accelerator", lambda *_: torch.device("cuda")),
            (torch.version, "cuda", torch.version.cuda or _CUDA_VERSION),
            (torch, "Generator", Generator),
            (torch, "Stream", Stream),
            (torch, "Event", AnyEvent),
            *((module, "CUDAGraph", CapturedGraph) for module in (torch.cuda, torch.cuda.graphs)),
            (torch.cuda, "_initialized", True),
            (torch.cuda, "_cudart", runtime(gpu, memory)),
        ):
            stack.enter_context(
                patched(
                    owner,
                    name,
                    value,
                    why="what code asks about the GPU is answered for the catalogue's",
                )
            )
        # Only builds with CUDA have it; bitsandbytes takes it at import.
        raw = patched(
            torch._C,
            "_cuda_getCurrentRawStream",
            lambda *_: 0,
            why="bitsandbytes takes it at import, and only builds with CUDA have it",
            is_missing_in_some=True,
        )
        stack.enter_context(raw)
        stack.enter_context(_autocast_swapped())
        stack.enter_context(types_on_the_gpu())
        yield


_TWINS = {"cuda": "cpu", "cpu": "cuda"}


@contextmanager
def _autocast_swapped() -> Iterator[None]:
    """Let ``cuda`` mean the CPU's autocasting, and the other way round.

    The CPU's kind then keeps its state where it changes nothing, as what runs on the host is not
    counted.
    """

    def swapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if "device_type" in kwargs:
                args = (kwargs.pop("device_type"), *args)
            elif not args or not isinstance(args[0], str):  # the old form, which means CUDA
                args = ("cuda", *args)
            return function(_TWINS.get(args[0], args[0]), *args[1:], **kwargs)

        return call

    names = ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype")
    functions = {name: getattr(torch, name) for name in (*names, "set_autocast_dtype")}
    get, put = functions["get_autocast_dtype"], functions["set_autocast_dtype"]
    before = {device: get(device) for device in _TWINS}
    of_cuda = {name: swapped(function) for name, function in functions.items()}
    of_cuda["get_autocast_gpu_dtype"] = lambda: get("cpu")
    of_cuda["set_autocast_gpu_dtype"] = lambda dtype: put("cpu", dtype)
    try:
        put("cpu", before["cuda"])
        put("cuda", before["cpu"])
        with ExitStack() as stack:
            for name, function in of_cuda.items():
                stack.enter_context(
                    patched(
                        torch,
                        name,
                        function,
                        why="autocast for CUDA is that of the CPU, with CUDA's list of operators",
                    )
                )
            yield
    finally:
        for device, dtype in before.items():
            put(device, dtype)
