"""The NVIDIA driver of a machine with one GPU, for drills of nodes that have one."""

import os
from types import SimpleNamespace


class NVMLError(Exception):
    """As the real one."""


def nvmlInit() -> None:  # noqa: N802
    """There is a driver."""


def nvmlShutdown() -> None:  # noqa: N802
    """It stays."""


def nvmlDeviceGetHandleByIndex(_index: int) -> str:  # noqa: N802
    """The GPU, by its UUID."""
    return os.environ["DRILL_GPU_UUID"]


def nvmlDeviceGetName(_device: str) -> str:  # noqa: N802
    """Its name."""
    return "NVIDIA A10"


def nvmlDeviceGetUUID(device: str) -> str:  # noqa: N802
    """Its UUID."""
    return device


def nvmlDeviceGetMemoryInfo(_device: str) -> SimpleNamespace:  # noqa: N802
    """Its memory."""
    return SimpleNamespace(total=24_146_608_128)


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    """The driver's version."""
    return "580.95"
