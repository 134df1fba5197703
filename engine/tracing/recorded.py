"""A training run as a recorder needs it, the memory of its kernels, and the limit that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .column_sums import ColumnSum

Temporaries = Callable[[str, Any, tuple[Any, ...]], Iterable["Temporary"]]


@dataclass(frozen=True)
class Temporary:
    """Memory that a kernel takes besides its result.

    Attributes:
        size: In bytes.
        kept: Whether it stays allocated for good, as a cached workspace does.
        sums: The sum over columns whose scratch it is, if any.
    """

    size: int
    kept: bool = False
    sums: ColumnSum | None = None


class Recorded(Protocol):
    """A training run, as a recorder needs it."""

    @property
    def model(self) -> torch.nn.Module:
        """The trained model; it may come to be in the first recorded step."""

    @property
    def optimizer(self) -> HasState | None:
        """The optimizer of the model."""

    @property
    def phase(self) -> str:
        """``inputs``, ``forward``, ``backward``, ``optimizer`` or ``idle``."""


class HasState(Protocol):
    """An optimizer, as far as its memory goes."""

    @property
    def state(self) -> Mapping[Any, Any]:
        """Its state by parameter."""


class MemoryLimitExceeded(MemoryError):
    """The tensors alive take more than the memory limit.

    Attributes:
        needed_bytes: Sum of the tensors alive, with the one that was one too many.
    """

    def __init__(self, needed_bytes: int, limit_bytes: int) -> None:
        self.needed_bytes = needed_bytes
        super().__init__(f"{needed_bytes:,} bytes of tensors needed, {limit_bytes:,} allowed")
