"""Triton's kernels, where a script or its libraries launch them themselves.

No operator shows such a launch, and there is no GPU to run it on. A kernel makes no tensors: it
reads and writes those that it is given. So one of our operators stands for it, whose time is that
of reading or writing each of them once, and what is in them afterwards is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...gpus import Gpu
from ...tracing.operations import OWN_KERNELS, own_writes
from ...tracing.operator_mode import parts_of
from ...versions.patches import patched
from .cuda_device import CUDA

_kernels = torch.library.Library(OWN_KERNELS, "FRAGMENT")
_kernels.define(
    "triton_kernel(Tensor(a!)[] tensors) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)
own_writes.add(torch.ops.memorymark.triton_kernel)

_SHARED_KIB = {7.0: 96, 7.5: 64, 8.0: 163, 8.6: 99, 8.9: 99, 9.0: 227, 10.0: 227}
"""The most shared memory of a block, in KiB, by compute capability (CUDA C++ Programming Guide,
release 13, "Technical Specifications per Compute Capability"); 99 where it is not listed."""


@torch.library.impl(_kernels, "triton_kernel", "CompositeExplicitAutograd")
def _do_nothing(tensors: list[torch.Tensor]) -> None:
    """Leave the tensors as they are: nobody knows what a kernel writes."""


@contextmanager
def triton_launches(gpu: Gpu, note: Callable[[str], None]) -> Iterator[None]:
    """Record launches of Triton's kernels, for as long as the context lasts.

    Args:
        gpu: The GPU that Triton finds.
        note: Receives who launches kernels, in a sentence.
    """
    if find_spec("triton") is None:
        yield
        return
    driver = import_module("triton.runtime").driver
    # Until Triton 3.3 the active driver is an attribute, later a property
    active = "_active" if isinstance(getattr(type(driver), "active", None), property) else "active"

    def launch(kernel: Any, *args: Any, warmup: bool = False, **kwargs: Any) -> None:
        if warmup:  # it is only compiled
            return
        note(_caveat(kernel))
        tensors = _tensors((*args, *kwargs.values()))
        for tensor in tensors:
            _forget_values(tensor)
        if tensors:
            with torch.no_grad():
                torch.ops.memorymark.triton_kernel(tensors)

    with ExitStack() as stack:
        stack.enter_context(
            patched(driver, active, _Driver(gpu), why="libraries ask Triton which GPU there is")
        )
        stack.enter_context(
            patched(
                import_module("torch._library.triton"),
                "is_wrap_triton_enabled",
                lambda: False,
                why="kernels of custom operators are launched like others, not compiled",
            )
        )
        for module, name in (("jit", "JITFunction"), ("autotuner", "Autotuner")):
            owner = getattr(import_module(f"triton.runtime.{module}"), name)
            stack.enter_context(
                patched(owner, "run", launch, why="there is no GPU to launch a kernel on")
            )
        yield


def _caveat(kernel: Any) -> str:
    function = kernel
    while hasattr(function, "fn"):  # what tunes, or compiles
        function = function.fn
    package = function.__module__.partition(".")[0]
    by = "The script" if package == "__main__" else package
    return (
        f"{by} launches Triton kernels of its own. They are not run: their time is assumed to be "
        "that of reading or writing each of their tensors once, and they take no memory beside "
        "their tensors."
    )


def _tensors(given: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors among the arguments; descriptors of tensors have one as their base."""
    bases = (one if isinstance(one, torch.Tensor) else getattr(one, "base", None) for one in given)
    return [part for one in bases if isinstance(one, torch.Tensor) for part in parts_of(one)]


def _forget_values(tensor: torch.Tensor) -> None:
    """Let a tensor that is written lose the values it was known to have.

    Fake tensors do so themselves, unless they are written in a list.
    """
    if isinstance(tensor, FakeTensor) and tensor.constant is not None:
        tensor.fake_mode.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)


class _Driver:
    """Triton's driver of a catalogue GPU, as far as it can be asked without one."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.utils = self

    def get_current_target(self) -> Any:
        capability = round(self._gpu.compute_capability * 10)
        return import_module("triton.backends.compiler").GPUTarget("cuda", capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return CUDA

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        shared = _SHARED_KIB.get(self._gpu.compute_capability, 99)
        return {
            "max_shared_mem": shared << 10,
            "max_num_regs": 1 << 16,
            "multiprocessor_count": torch.cuda.get_device_properties(0).multi_processor_count,
            "warpSize": 32,
        }
