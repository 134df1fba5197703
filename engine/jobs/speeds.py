"""Training speed as trackers log it."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = (
    "train_samples_per_second",  # transformers' Trainer
    "train/train_samples_per_second",  # the same in W&B
    "samples_per_second",
    "train/samples_per_second",
    "throughput/samples_per_sec",  # Composer's SpeedMonitor
)


def logged_speed(metrics: Mapping[str, object]) -> float | None:
    """Samples per second over all GPUs; ``None`` if none of the usual names is logged."""
    found = (metrics.get(name) for name in _NAMES)
    return next((float(one) for one in found if isinstance(one, int | float) and one > 0), None)
