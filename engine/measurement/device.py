"""This machine's device as a request limits, shares and prices it."""

from __future__ import annotations

from dataclasses import replace

from ..core.errors import InvalidInput
from ..core.sizes import gib
from ..gpus import Gpu, catalogue_name
from ..gpus.known import known_gpus
from ..interface.request import Request
from ..interface.trial import GpuFacts
from ..interface.workload import Workload
from .protocol import DeviceFacts


def device_for(request: Request, device: DeviceFacts, workload: Workload | None) -> GpuFacts:
    """The device as limited by a request, less what NCCL uses.

    Args:
        request: Sets the memory limit and the options of the allocator.
        device: This machine's device.
        workload: The workload to train; ``None`` for a script, which trains on one GPU.

    Raises:
        InvalidInput: If the request needs more than there is.
    """
    wrong: dict[str, str] = {}
    if request.allocator and device.kind != "cuda":
        wrong["allocator"] = f"{device.name} has no CUDA caching allocator; leave its options out"
    together = 1
    if workload is not None:
        wrong |= lacking_devices(workload, device)
        together = workload.world_size
    try:
        gpu = limited_device(device, request.memory_limit_bytes)
    except InvalidInput as error:
        raise InvalidInput(wrong | error.fields) from error
    if device.kind == "cpu" and together * gpu.total_bytes > device.total_bytes:
        wrong["memory_limit_bytes"] = (
            f"{together:,} times {gib(gpu.total_bytes)} is more than the "
            f"{gib(device.total_bytes)} of {device.name}; lower it"
        )
    if wrong:
        raise InvalidInput(wrong)
    if workload is None or device.kind != "cuda":
        return gpu
    from ..parallel.interconnect import nccl_bytes  # loads torch
    from ..prediction.memory.colocation import vllm_bytes_in_update

    others = nccl_bytes(workload.world_size) + vllm_bytes_in_update(workload, gpu.total_bytes)
    return replace(gpu, usable_bytes=max(gpu.usable_bytes - others, 0))


def lacking_devices(workload: Workload, device: DeviceFacts) -> dict[str, str]:
    """The error for a workload that needs more GPUs than there are; empty if there are enough."""
    if workload.world_size <= device.count:
        return {}
    kind = "core(s), each of which may stand for a GPU" if device.kind == "cpu" else "GPU(s)"
    return {
        "world_size": f"this machine has {device.count:,} {kind}; use no more, or choose a "
        "catalogue GPU for a prediction"
    }


def limited_device(device: DeviceFacts, limit_bytes: int | None) -> GpuFacts:
    """The device, with the memory limit (if any) as its memory."""
    if device.kind == "cpu" and limit_bytes is None:
        raise InvalidInput(
            {
                "memory_limit_bytes": "this machine has no GPU; set a limit, such as 2 GiB, to "
                "measure on the CPU, or choose a catalogue GPU for a prediction"
            }
        )
    if limit_bytes is not None and limit_bytes > device.total_bytes:
        raise InvalidInput(
            {
                "memory_limit_bytes": f"{device.name} has {gib(device.total_bytes)}; "
                "set no more than that"
            }
        )
    total = limit_bytes or device.total_bytes
    name = device.name
    if limit_bytes is not None:
        name += f" limited to {gib(limit_bytes)}"
    return GpuFacts(name, total, max(total - device.context_bytes, 0))


def local_price_per_hour(request: Request, device: DeviceFacts) -> float:
    """The request's price, else that of the catalogue GPU with this name, else zero."""
    if request.assumptions.price_per_hour_usd is not None:
        return request.assumptions.price_per_hour_usd
    known = in_the_catalogue(device)
    return (known.price_per_hour_usd or 0.0) if known else 0.0


def in_the_catalogue(device: DeviceFacts) -> Gpu | None:
    """The catalogue's GPU of that kind, as a self-check measured it; ``None`` if it has none."""
    on_cuda = device.kind == "cuda"
    name = catalogue_name(device.name, device.total_bytes) if on_cuda else None
    return None if name is None else known_gpus()[name]
