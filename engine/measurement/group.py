"""A trial on several GPUs, put together from the trials of each: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from engine.result import Trial


def merged(trials: Mapping[int, Trial]) -> Trial:
    """The trial of a group: it fits if all fit, and needs what the neediest GPU needs.

    Times need no merging: the GPUs of a group agree on the slowest's, step by step.

    Args:
        trials: By the GPU's number in the group, one at least; where one GPU gave up, perhaps its
            alone.
    """
    failed = next((rank for rank, trial in trials.items() if not trial.fits), None)
    if failed is not None:
        trial = trials[failed]
        which = f"GPU {failed}: " if failed or len(trials) > 1 else ""
        return replace(trial, failure=f"{which}{trial.failure}")
    neediest = max(trials.values(), key=lambda trial: trial.peak_allocated_bytes or 0)
    return replace(
        neediest,
        peak_reserved_bytes=_largest(trial.peak_reserved_bytes for trial in trials.values()),
        device_used_bytes=_largest(trial.device_used_bytes for trial in trials.values()),
        alloc_retries=_largest(trial.alloc_retries for trial in trials.values()),
    )


def _largest(figures: Iterable[int | None]) -> int | None:
    return max((figure for figure in figures if figure is not None), default=None)
