"""The device a training run uses, its peak memory, and the software around it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_FRAMEWORKS = ("torch", "transformers", "lightning", "pytorch-lightning", "accelerate", "peft")


@dataclass(frozen=True)
class DeviceFacts:
    """The device, in fields of a :class:`~engine.records.record.TrainingRecord`."""

    device: str
    device_name: str
    device_total_bytes: int
    device_uuid: str = ""


def default_device() -> torch.device:
    """The device that training uses on this machine by default."""
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def device_facts(device: torch.device) -> DeviceFacts:
    """Name, memory and UUID of a device; without CUDA, the machine's processor and memory."""
    import torch

    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return DeviceFacts(
            "cuda", properties.name, properties.total_memory, str(getattr(properties, "uuid", ""))
        )
    name = f"CPU ({platform.processor() or platform.machine()})"
    if device.type == "mps":
        name = f"Apple GPU ({platform.machine()})"
    return DeviceFacts(device.type, name, _machine_bytes())


def _machine_bytes() -> int:
    if not hasattr(os, "sysconf"):  # Windows
        return 0
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def forget_peaks(device: torch.device) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.init()  # before that, resetting the peaks is an error
        torch.cuda.reset_peak_memory_stats(device)


def peaks(device: torch.device) -> dict[str, int]:
    """Peak allocated and peak reserved, in bytes; empty without CUDA."""
    import torch

    if device.type != "cuda":
        return {}
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
    }


def versions() -> dict[str, str]:
    import torch

    found = {"python": platform.python_version()}
    for name in _FRAMEWORKS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def rank() -> int:
    """This process's rank in distributed training; 0 if it trains alone."""
    import torch

    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return 0


def parameter_bytes_of(model: Any) -> int:
    """Bytes of a model's parameters in this process; those that are shared count once."""
    return sum(weight.numel() * weight.element_size() for weight in model.parameters())


def precision_of(model: Any, autocast: str, device: torch.device) -> str:
    """The precision of a training run, named as in a workload where that has a name for it.

    The names are those of :class:`engine.interface.workload.Precision`, spelled out because a
    training job need not have that module's dependencies.

    Args:
        model: The number format of its first parameter counts.
        autocast: ``bf16``, ``fp16``, or empty without autocast.
        device: Determines whether fp32 products may use TF32.
    """
    import torch

    if autocast:
        return f"{autocast}-mixed"
    weight = next(iter(model.parameters()), None)
    if weight is None:
        return ""
    if weight.dtype is torch.float32:
        tf32 = device.type == "cuda" and torch.backends.cuda.matmul.fp32_precision == "tf32"
        return "tf32" if tf32 else "fp32"
    return _TRUE.get(str(weight.dtype), "")


_TRUE: Mapping[str, str] = {
    "torch.bfloat16": "bf16-true",
    "torch.float16": "fp16-true",
    "torch.float64": "fp64-true",
}
