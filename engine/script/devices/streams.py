"""CUDA's streams and events; all work is done at once."""

from __future__ import annotations

from typing import Any

import torch

from ...versions.patches import patch_for_good
from .cuda_device import CUDA


class Stream:
    """A CUDA stream; all work is done at once.

    Which one is current is what ``torch.cpu.current_stream`` says, where the recorder reads it.
    """

    cuda_stream = native_handle = stream_id = device_index = priority = 0
    device_type = 1  # CUDA, as PyTorch numbers them
    device = CUDA

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self._before: list[Any] = []  # the current streams when it was entered

    def __enter__(self) -> Stream:
        self._before.append(torch.cpu.current_stream())
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._before.pop())

    def wait_event(self, event: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        return event or Event()

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None:
        pass

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority."""
        return 0, -5


class ExternalStream(Stream):
    """A stream that another library has made."""

    def __init__(self, stream_ptr: Any, device: Any = None, **kwargs: Any) -> None:
        super().__init__(device)


def set_stream(stream: Any) -> None:
    """Let a stream be the current one."""
    patch_for_good(
        torch.cpu,
        "_current_stream",
        stream,
        why="the recorder reads there which stream is current, until the machine's context ends",
    )


class AnyEvent:
    """An event, as ``torch.Event`` makes one; it has always happened."""

    def __init__(self, device: Any = None, **kwargs: Any) -> None:
        pass

    def record(self, stream: object = None) -> None:
        pass

    def wait(self, stream: object = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: object) -> float:
        """Milliseconds: none is known, so a placeholder."""
        return 1.0


_HANDLE_BYTES = 64
"""Length of what names an event to another process."""


class Event(AnyEvent):
    """A CUDA event, which has other arguments."""

    cuda_event = event_id = 0
    device = CUDA

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        super().__init__()

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: Any) -> Event:
        return cls()

    def ipc_handle(self) -> bytes:
        return bytes(_HANDLE_BYTES)
