"""The NVIDIA driver of a machine with one GPU, for drills of nodes that have one."""

import os
from types import SimpleNamespace


class NVMLError(Exception):
    """As the real one."""


def nvmlInit() -> None:
    """There is a driver."""


def nvmlShutdown() -> None:
    """It stays."""


def nvmlDeviceGetHandleByIndex(_index: int) -> str:
    """The GPU, by its UUID."""
    return os.environ["DRILL_GPU_UUID"]


def nvmlDeviceGetName(_device: str) -> str:
    """Its name."""
    return "NVIDIA A10"


def nvmlDeviceGetUUID(device: str) -> str:
    """Its UUID."""
    return device


def nvmlDeviceGetMemoryInfo(_device: str) -> SimpleNamespace:
    """Its memory."""
    return SimpleNamespace(total=24_146_608_128)


def nvmlSystemGetDriverVersion() -> str:
    """The driver's version."""
    return "580.95"
