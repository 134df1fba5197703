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
