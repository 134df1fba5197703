"""This machine's device as a question has it: limited, shared, and at a price."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import InvalidInput
from engine.gpus import GPUS
from engine.measurement.protocol import DeviceFacts
from engine.parallel.interconnect import nccl_bytes
from engine.request import Question
from engine.result import GpuFacts
from engine.workload import Workload


def device_for(question: Question, device: DeviceFacts, workload: Workload | None) -> GpuFacts:
    """The device as a question has it: limited, and with what NCCL takes of it.

    Args:
        question: With a memory limit and options of the allocator.
        device: This machine's.
        workload: What is trained; ``None`` for a person's own code, which trains on one GPU.

    Raises:
        InvalidInput: If the question asks for more than there is.
    """
    wrong: dict[str, str] = {}
    if question.allocator and device.kind != "cuda":
        wrong["allocator"] = f"{device.name} has no CUDA caching allocator; leave its options out"
    together = 1
    if workload is not None:
        wrong |= lacking_devices(workload, device)
        together = workload.world_size
    try:
        gpu = limited_device(device, question.memory_limit_bytes)
    except InvalidInput as error:
        raise InvalidInput(wrong | error.fields) from error
    if device.kind == "cpu" and together * gpu.total_bytes > device.total_bytes:
        wrong["memory_limit_bytes"] = (
            f"{together:,} times {gpu.total_bytes / 2**30:.2f} GiB is more than the "
            f"{device.total_bytes / 2**30:.2f} GiB of {device.name}; give less"
        )
    if wrong:
        raise InvalidInput(wrong)
    if workload is None or device.kind != "cuda":
        return gpu
    return replace(gpu, usable_bytes=max(gpu.usable_bytes - nccl_bytes(workload), 0))


def lacking_devices(workload: Workload, device: DeviceFacts) -> dict[str, str]:
    """What is wrong with a workload that several GPUs share if there are not so many."""
    if workload.world_size <= device.count:
        return {}
    kind = "core(s), each of which may stand for a GPU" if device.kind == "cpu" else "GPU(s)"
    return {
        "world_size": f"this machine has {device.count:,} {kind}; ask for no more, or name a GPU "
        "of the catalogue for a prediction"
    }


def limited_device(device: DeviceFacts, limit_bytes: int | None) -> GpuFacts:
    """The device, with the memory limit as its memory if there is one."""
    if device.kind == "cpu" and limit_bytes is None:
        raise InvalidInput(
            {
                "memory_limit_bytes": "this machine has no GPU; give a limit, such as 2 GiB, to "
                "measure on the CPU, or name a GPU for a prediction"
            }
        )
    if limit_bytes is not None and limit_bytes > device.total_bytes:
        raise InvalidInput(
            {
                "memory_limit_bytes": f"{device.name} has {device.total_bytes / 2**30:.2f} GiB; "
                "give no more than that"
            }
        )
    total = limit_bytes or device.total_bytes
    name = (
        device.name
        if limit_bytes is None
        else (f"{device.name} limited to {limit_bytes / 2**30:.2f} GiB")
    )
    return GpuFacts(name, total, max(total - device.context_bytes, 0))


def local_price_per_hour(request: Question, device: DeviceFacts) -> float:
    """The request's price, else the catalogue's for a GPU of that name, else zero."""
    if request.assumptions.price_per_hour_usd is not None:
        return request.assumptions.price_per_hour_usd
    same = (gpu.price_per_hour_usd for gpu in GPUS.values() if gpu.display_name == device.name)
    return next(same, 0.0)
