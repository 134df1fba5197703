"""The GPU that processes here would use, as NVIDIA's driver describes it.

It creates no CUDA context, so it takes no memory on the GPU, and loads no torch.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalGpu:
    """The first GPU available to this process."""

    name: str
    uuid: str
    total_bytes: int
    driver: str


def local_gpu() -> LocalGpu | None:
    """The first visible GPU according to the NVIDIA driver; ``None`` if there is none."""
    try:
        import pynvml  # not needed before, and a bare machine may lack it
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None  # no driver, or no GPU
    try:
        device = _first_visible(pynvml)
        if device is None:
            return None
        return LocalGpu(
            name=_text(pynvml.nvmlDeviceGetName(device)),
            uuid=_text(pynvml.nvmlDeviceGetUUID(device)),
            total_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(device).total),
            driver=_text(pynvml.nvmlSystemGetDriverVersion()),
        )
    except pynvml.NVMLError:
        logger.exception("the NVIDIA driver is there but does not describe its GPU")
        return None
    finally:
        pynvml.nvmlShutdown()


def _first_visible(pynvml: Any) -> Any:
    """The handle of our first GPU: NVML lists all, ``CUDA_VISIBLE_DEVICES`` says which are ours."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = "0" if visible is None else visible.split(",")[0].strip()
    if first.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(first))
    if first.startswith("GPU-"):
        return pynvml.nvmlDeviceGetHandleByUUID(first)
    return None  # none is visible: for CUDA, an invalid entry ends the list


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
