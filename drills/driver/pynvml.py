"""Stands in for the NVIDIA driver of a machine with one GPU."""

import os
from types import SimpleNamespace


class NVMLError(Exception):
    """Same name as in the real module."""


def nvmlInit() -> None:
    """Succeeds, as with a driver installed."""


def nvmlShutdown() -> None:
    """Does nothing."""


def nvmlDeviceGetHandleByIndex(_index: int) -> str:
    """The handle: the GPU's UUID."""
    return os.environ["DRILL_GPU_UUID"]


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
    """The handle: the GPU's UUID."""
    return uuid


def nvmlDeviceGetName(_device: str) -> str:
    """The GPU's name."""
    return "NVIDIA A10"


def nvmlDeviceGetUUID(device: str) -> str:
    """The GPU's UUID."""
    return device


def nvmlDeviceGetMemoryInfo(_device: str) -> SimpleNamespace:
    """The GPU's memory, in bytes."""
    return SimpleNamespace(total=24_146_608_128)


def nvmlSystemGetDriverVersion() -> str:
    """The driver's version."""
    return "580.95"


NVML_CLOCK_SM = 1


def nvmlDeviceGetEnforcedPowerLimit(_device: str) -> int:
    """Milliwatts."""
    return 150_000


def nvmlDeviceGetClockInfo(_device: str, _clock: int) -> int:
    """MHz; not every GPU reports it."""
    raise NVMLError("not supported")


def nvmlDeviceGetMaxClockInfo(_device: str, _clock: int) -> int:
    """MHz."""
    return 1695
