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
        samples_per_second: Samples of one training step, over its micro-batches and GPUs, per
            second of it.
        device_used_low_bytes, device_used_high_bytes: The interval of a predicted
            ``device_used_bytes``, from the residuals seen so far; ``None`` for measured figures.
        step_seconds_low, step_seconds_high: The interval of a predicted ``step_seconds``; of a
            measured one, the quartiles of its steps' times: half of the steps lie between. ``None``
            where a single step was timed.
        breakdown: Bytes at the peak by category (``parameters``, ``gradients``,
            ``optimizer_state``, ``casts``: copies of parameters in another number format,
            ``activations``: what one phase of the step leaves to the next, ``temporaries``: what is
            made and freed within one, ``inputs``, ``workspaces``), which add up to
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
    device_used_low_bytes: int | None = None
    device_used_high_bytes: int | None = None
    step_seconds_low: float | None = None
    step_seconds_high: float | None = None
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
class TimelinePoint:
    """Bytes alive at one moment of a training step.

    Attributes:
        at: Where in the step, from 0 (its begin) to 1 (its end), counted in allocations and frees.
        phase: ``inputs``, ``forward``, ``backward`` or ``optimizer``.
        bytes: Bytes of the tensors by category, the names of ``Trial.breakdown``; the caching
            allocator rounds each tensor up, so the highest point lies a little below the peak
            allocated.
    """

    at: float
    phase: str
    bytes: dict[str, int]


@dataclass(frozen=True)
class LargeTensor:
    """One of the largest tensors alive at the peak.

    Attributes:
        size_bytes: Its bytes.
        category: As in ``Trial.breakdown``.
        module: The module that made it, as ``model.named_modules()`` names it, or that a parameter,
            its gradient and its optimizer state belong to; empty if there is none.
        operation: The operator that made it, such as ``aten.addmm``; empty for parameters.
    """

    size_bytes: int
    category: str
    module: str
    operation: str


@dataclass(frozen=True)
class Comparison:
    """Current and recommended batch measured in turn, so that drift does not pass for a gain.

    Attributes:
        current_samples_per_second: At the current batch, by round; each a trial in a fresh process.
        recommended_samples_per_second: At the recommended batch, by round.
        coverage: How sure it is that the true speedup lies within its interval, from 0 to 1.
    """

    current_samples_per_second: list[float]
    recommended_samples_per_second: list[float]
    coverage: float


@dataclass(frozen=True)
class MeasuredOn:
    """What a measurement ran on.

    What belongs to CUDA is ``None`` or empty where there is none, or where it is not told.

    Attributes:
        device: As its driver names it; ``cpu`` or ``mps`` without CUDA.
        torch, transformers: Versions.
        cpu_threads: Threads that PyTorch computes with on the host.
        compute_capability: Such as ``8.6``.
        driver, cuda, cudnn: Versions of NVIDIA's driver, of CUDA and of cuDNN in PyTorch.
        allocator: Options of the caching allocator, as ``PYTORCH_ALLOC_CONF`` has them; empty for
            PyTorch's default.
        matmul_precision, convolution_precision: What fp32 matrix products and convolutions may be
            computed in: ``tf32``, ``ieee``, or ``none`` for PyTorch's default.
        cudnn_benchmark: Whether cuDNN tries its algorithms out.
        deterministic: Whether only deterministic algorithms are allowed.
        power_limit_watts: What the driver lets the GPU draw.
        clock_mhz, largest_clock_mhz: Of the multiprocessors: just before a step, and the most
            there is.
    """

    device: str
    torch: str
    transformers: str
    cpu_threads: int
    compute_capability: str = ""
    driver: str = ""
    cuda: str = ""
    cudnn: str = ""
    allocator: str = ""
    matmul_precision: str = ""
    convolution_precision: str = ""
    cudnn_benchmark: bool | None = None
    deterministic: bool | None = None
    power_limit_watts: float | None = None
    clock_mhz: int | None = None
    largest_clock_mhz: int | None = None


@dataclass(frozen=True)
class GlobalBatch:
    """How the user's global batch is kept at the recommended batch.

    Attributes:
        size: Samples per optimizer step that were asked for, over micro-batches and GPUs.
        gradient_accumulation: Micro-batches of the recommended size to one optimizer step.
        kept_size: Samples per optimizer step that makes; more than ``size`` only where no allowed
            batch size divides it evenly.
        otherwise: What changes without accumulation, in a sentence.
    """

    size: int
    gradient_accumulation: int
    kept_size: int
    otherwise: str


@dataclass(frozen=True)
class AnalysisResult:
    """The answer to one analysis.

    Attributes:
        model_name: The model's name as people know it; of a person's own code, its factory.
        workload: What is trained and how; ``None`` for a person's own code.
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
        timeline: Memory along one step at the recommended batch, for a chart.
        largest_tensors: The largest tensors alive at its peak, largest first.
        certificate: Commands that repeat the trials on both sides of the limit.
        safe_batch_size: The largest batch that fits even at the high end of its prediction;
            ``None`` where the limit was measured. The recommended batch is never larger, unless
            this is zero.
        global_batch: How the global batch is kept; ``None`` if none was asked for.
        speedup_low, speedup_high: The interval of ``speedup``; a speedup whose low end is not above
            1 is no gain. ``None`` where there is no speedup.
        comparison: What a measured speedup was computed from; ``None`` where the two batches are
            the same, one does not fit, or nothing was measured.
        measured_on: What the measurements ran on; ``None`` where nothing was measured.
    """

    model_name: str
    workload: Workload | None
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
    timeline: list[TimelinePoint] = field(default_factory=list)
    largest_tensors: list[LargeTensor] = field(default_factory=list)
    certificate: list[str] = field(default_factory=list)
    safe_batch_size: int | None = None
    global_batch: GlobalBatch | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    comparison: Comparison | None = None
    measured_on: MeasuredOn | None = None

    def to_dict(self) -> dict[str, object]:
        """The result as plain JSON values."""
        return asdict(self)
