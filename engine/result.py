"""What an analysis answers: trials, the verdict and what it is worth, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from engine.workload import Workload


class Source(StrEnum):
    """Where a figure comes from."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Trial:
    """One batch size tried.

    Attributes:
        batch_size: Samples per step.
        fits: Whether two whole training steps ran within the GPU's memory.
        source: Whether the figures were measured or predicted.
        peak_allocated_bytes: Most bytes held by tensors at once. Where the batch does not fit:
            what it would need, if that is known.
        peak_reserved_bytes: Most bytes the caching allocator held. ``None`` where there is no such
            allocator (CPU).
        device_used_bytes: Reserved plus CUDA context and libraries. ``None`` as above.
        step_seconds: Time of one training step; median if measured.
        samples_per_second: ``batch_size / step_seconds``.
        breakdown: Bytes at the peak by category (``parameters``, ``gradients``,
            ``optimizer_state``, ``activations``, ``inputs``, ``workspaces``), which add up to
            ``peak_allocated_bytes``; empty where it is not known.
        alloc_retries: How often the caching allocator had to give its cache back to CUDA to serve
            a request: above zero it fits, but slowly. ``None`` where it is not known.
        failure: Why it does not fit, in words; empty if it fits.
    """

    batch_size: int
    fits: bool
    source: Source
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    device_used_bytes: int | None = None
    step_seconds: float | None = None
    samples_per_second: float | None = None
    breakdown: dict[str, int] = field(default_factory=dict)
    alloc_retries: int | None = None
    failure: str = ""


@dataclass(frozen=True)
class Savings:
    """GPU-hours and money per year, going from the current to the recommended batch.

    All are zero where there is no gain. ``source`` is that of the speedup; hours, runs and price
    are always assumptions, repeated here as they were used.
    """

    source: Source
    gpu_hours_per_year: float
    usd_per_year: float
    current_usd_per_run: float
    recommended_usd_per_run: float
    hours_per_run: float
    runs_per_year: float
    price_per_hour_usd: float


@dataclass(frozen=True)
class GpuFacts:
    """The GPU an analysis was made for.

    Attributes:
        name: Its name as people know it.
        total_bytes: Its memory, or the memory limit that was given.
        usable_bytes: What the caching allocator can have of it: the line a peak reserved must stay
            under.
    """

    name: str
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True)
class AnalysisResult:
    """The answer to one analysis.

    Attributes:
        model_name: The model's name as people know it.
        source: ``measured`` if both sides of the limit were measured, else ``predicted``.
        largest_batch_size: The largest batch size that fits.
        next_batch_size: The next one up (by the batch multiple).
        next_batch_size_fails: Whether that one was tried and does not fit; false only where the
            search ended at its upper bound.
        recommended_batch_size: The smallest within 5 % of the best samples per second.
        current_headroom_bytes: Device memory left unused at the current batch; ``None`` if the
            current batch does not fit.
        largest_headroom_bytes: The same at the largest batch.
        speedup: Samples per second at the recommended batch over those at the current batch;
            ``None`` if the current batch does not fit.
        verdict: The answer in one sentence.
        curve: Points of memory against batch for a chart; trials, but not part of the search.
        trials: Every batch size tried, in the order of trying.
        caveats: What a reader has to know about these figures, one sentence each.
    """

    model_name: str
    workload: Workload
    gpu: GpuFacts
    source: Source
    largest_batch_size: int
    next_batch_size: int
    next_batch_size_fails: bool
    recommended_batch_size: int
    current_batch_size: int
    current_headroom_bytes: int | None
    largest_headroom_bytes: int
    speedup: float | None
    savings: Savings | None
    verdict: str
    curve: list[Trial]
    trials: list[Trial]
    caveats: list[str]

    def to_dict(self) -> dict[str, object]:
        """The result as plain JSON values."""
        return asdict(self)
