"""Errors of predictions, summed up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from engine.prediction.timing.past_errors import percentile


@dataclass(frozen=True)
class Errors:
    """Absolute errors relative to the measurement; all ``None`` if nothing was compared."""

    compared: int
    median: float | None = None
    percentile_95: float | None = None
    worst: float | None = None

    @classmethod
    def of(cls, errors: Iterable[float | None]) -> Errors:
        """Summarize the known errors."""
        sizes = [abs(error) for error in errors if error is not None]
        if not sizes:
            return cls(0)
        return cls(len(sizes), median(sizes), percentile(sizes, 0.95), max(sizes))

    def __str__(self) -> str:
        """Such as ``median error 0.4%, 95th percentile 2.5%, worst 6.0%``."""
        return (
            f"median error {self.median:.1%}, 95th percentile {self.percentile_95:.1%}, worst "
            f"{self.worst:.1%}"
        )
