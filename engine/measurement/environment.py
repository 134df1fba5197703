"""Environment of a measurement: device, driver, libraries and the settings that matter."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import transformers

from ..interface.result import MeasuredOn
from .protocol import TrialOrder
from .steps import steps_of

try:
    import pynvml
except ImportError:  # PyTorch alone is enough to measure; the driver is then unknown
    pynvml = None


def measured_on(order: TrialOrder) -> MeasuredOn:
    """Read what a trial runs on, with everything set up as for that trial.

    The model is built but not stepped: building applies the precision, and a script may change any
    setting.

    Args:
        order: A trial that fits.
    """
    steps_of(order).build(device_kind())
    return here()


def here() -> MeasuredOn:
    """Environment of this process, with its settings as they are now."""
    device = device_kind()
    libraries = MeasuredOn(
        device=device,
        torch=torch.__version__,
        transformers=transformers.__version__,
        cpu_threads=torch.get_num_threads(),
    )
    return _on_cuda(libraries) if device == "cuda" else libraries


def device_kind() -> str:
    """Kind of device that trials run on here: ``cuda``, else ``mps``, else ``cpu``."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _on_cuda(libraries: MeasuredOn) -> MeasuredOn:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    cudnn = torch.backends.cudnn
    found: dict[str, Any] = {
        "device": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda or "",
        "cudnn": str(cudnn.version() or ""),
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF")
        or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "matmul_precision": torch.backends.cuda.matmul.fp32_precision,
        "convolution_precision": cudnn.conv.fp32_precision,  # type: ignore[attr-defined]  # made at import
        "cudnn_benchmark": cudnn.benchmark,
        "deterministic": cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
    }
    return MeasuredOn(**vars(libraries) | found | driver_facts(str(properties.uuid)))


def driver_facts(uuid: str) -> dict[str, str | float]:
    """Facts about a GPU from NVML: driver, power limit, clocks. Unknown values are left out.

    Virtual or partitioned (MIG) GPUs, containers without the driver's library and a Python without
    NVML can all train without NVML.

    Args:
        uuid: UUID from CUDA, without the prefix ``GPU-``.
    """
    if pynvml is None:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    found: dict[str, str | float] = {}
    try:
        found["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        for name, query in _QUERIES.items():
            with suppress(pynvml.NVMLError):
                found[name] = query(gpu)
    except pynvml.NVMLError:
        return found
    finally:
        pynvml.nvmlShutdown()
    return found


_QUERIES: dict[str, Callable[[Any], float]] = {
    "power_limit_watts": lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "largest_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM),
}
