"""Batch sizes that were tried, and where their numbers come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Source(StrEnum):
    """Origin of a number.

    ``computed`` is predicted too, but only a part of the step was traced: the rest is arithmetic.
    """

    MEASURED = "measured"
    PREDICTED = "predicted"
    COMPUTED = "computed"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class GpuFacts:
    """The GPU of an analysis.

    Attributes:
        name: For people to read.
        total_bytes: Its memory, or the memory limit.
        usable_bytes: Available to the caching allocator: the limit of the peak reserved.
    """

    name: str
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True)
class Trial:
    """One batch size tried.

    Attributes:
        batch_size: Samples per step.
        fits: Whether two whole training steps ran within the GPU's memory.
        source: ``measured``, ``predicted`` or ``computed``.
        peak_allocated_bytes: Most bytes held by tensors at once. If the batch does not fit: the
            bytes that it would need, if known.
        peak_reserved_bytes: Most bytes held by the caching allocator; ``None`` on the CPU, which
            has none.
        device_used_bytes: Reserved plus CUDA context and libraries. ``None`` as above.
        step_seconds: Time of one training step; median if measured.
        samples_per_second: Over all micro-batches and GPUs of a step.
        device_used_low_bytes, device_used_high_bytes: The interval of a predicted
            ``device_used_bytes``, from known residuals; ``None`` if measured.
        step_seconds_low, step_seconds_high: The interval of a predicted ``step_seconds``; the
            quartiles of a measured one, ``None`` if only one step was timed.
        operations_seconds: Predicted time of the operations of the step alone, which measured steps
            on that GPU may have corrected in ``step_seconds``. Also of a measured trial on a
            catalogue GPU, so that others learn from it; ``None`` if unknown, or if a host decides
            of which nothing is known.
        breakdown: Bytes at the peak by category (``parameters``, ``gradients``,
            ``optimizer_state``, ``casts``: copies of parameters in another number format,
            ``activations``: kept from one phase of the step to the next, ``temporaries``: created
            and freed within one, ``inputs``, ``workspaces``, ``outputs``: kept by an evaluation for
            its metrics, ``cache``: keys and values of texts being generated), which add up to
            ``peak_allocated_bytes``; empty if unknown.
        alloc_retries: Number of times that the caching allocator had to release its cache to serve
            a request: above zero the batch fits, but slowly. ``None`` if unknown.
        failure: Reason why it does not fit; empty if it fits.
    """

    batch_size: int
    fits: bool
    source: Source
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    device_used_bytes: int | None = None
    step_seconds: float | None = None
    samples_per_second: float | None = None
    device_used_low_bytes: int | None = None
    device_used_high_bytes: int | None = None
    step_seconds_low: float | None = None
    step_seconds_high: float | None = None
    operations_seconds: float | None = None
    breakdown: dict[str, int] = field(default_factory=dict)
    alloc_retries: int | None = None
    failure: str = ""


Probe = Callable[[int], Trial]
"""Tries or predicts one batch size."""


@dataclass(frozen=True)
class StepFiles:
    """Files to write of a measured step for other tools; ``None`` for those not wanted.

    Attributes:
        snapshot: Takes the CUDA caching allocator's snapshot.
        chrome: Takes the trace of PyTorch's profiler.
    """

    snapshot: Path | None = None
    chrome: Path | None = None


NO_FILES = StepFiles()
