"""The result of an analysis as plain data: trials, verdict and savings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from ..core.numbers import significant
from ..core.sizes import gib, gib_number
from .workload import Workload


class Source(StrEnum):
    """Origin of a number.

    ``computed`` is predicted too, but only a part of the step was traced: the rest is arithmetic.
    """

    MEASURED = "measured"
    PREDICTED = "predicted"
    COMPUTED = "computed"
    ASSUMED = "assumed"


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


@dataclass(frozen=True)
class BatchTrials:
    """Memory and time of batch sizes of a script on a GPU, predicted or measured.

    Attributes:
        gpu: The GPU.
        trials: Trials by batch size.
        caveats: Sentences about what the numbers assume and leave out.
        software: The versions that it was traced with, by package.
    """

    gpu: GpuFacts
    trials: list[Trial]
    caveats: list[str]
    software: dict[str, str]

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        """One line for each batch size, then what they assume."""
        lines = [self._line(trial) for trial in self.trials]
        return "\n".join([*lines, *(f"- {caveat}" for caveat in self.caveats)])

    def _line(self, trial: Trial) -> str:
        known = trial.device_used_bytes or trial.peak_allocated_bytes or 0
        fits = "fits" if trial.fits else "does not fit"
        line = f"Batch {trial.batch_size:,} {fits} on {self.gpu.name}: {gib_number(known)}"
        low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
        if low is not None and high is not None:
            line += f" ({gib_number(low)} to {gib_number(high)})"
        line += f" of {gib(self.gpu.total_bytes)}"
        if trial.fits and trial.samples_per_second is not None:
            line += f", {significant(trial.samples_per_second)} samples/s"
        return f"{line} ({trial.source})"


@dataclass(frozen=True)
class Energy:
    """The energy of a training run, and how much the recommended batch saves in a year.

    Only that of the GPUs, all together. Power is predicted; the grid's intensity is assumed.

    Attributes:
        power_limit_watts: Power limit of one GPU.
        current_watts, recommended_watts: Mean power of one GPU at the load of that batch.
        current_kwh_per_run, recommended_kwh_per_run: Energy of a run now, and at the recommended
            batch.
        kwh_per_year: Energy saved; zero without a gain.
        kwh_per_year_low, kwh_per_year_high: Its interval; below zero where more may be drawn than
            the speedup saves.
        kg_co2e_per_year: Emissions saved.
        grid_co2e_grams_per_kwh: Assumed intensity of the grid.
    """

    power_limit_watts: float
    current_watts: float
    recommended_watts: float
    current_kwh_per_run: float
    recommended_kwh_per_run: float
    kwh_per_year: float
    kwh_per_year_low: float
    kwh_per_year_high: float
    kg_co2e_per_year: float
    grid_co2e_grams_per_kwh: float


@dataclass(frozen=True)
class Savings:
    """GPU-hours, money and energy saved per year by the recommended batch.

    Savings are zero without a gain. ``source`` is that of the speedup; hours, runs and price are
    always assumptions, repeated here as used.

    Attributes:
        energy: ``None`` where the GPU's power is not known.
    """

    source: Source
    gpu_hours_per_year: float
    usd_per_year: float
    current_usd_per_run: float
    recommended_usd_per_run: float
    hours_per_run: float
    runs_per_year: float
    price_per_hour_usd: float
    energy: Energy | None = None


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
class TimelinePoint:
    """Live bytes at one moment of a training step.

    Attributes:
        at: Progress through the step from 0 to 1, counted in allocations and frees.
        phase: ``inputs``, ``forward``, ``backward`` or ``optimizer``.
        bytes: By category, named as in ``Trial.breakdown``. The caching allocator rounds each
            tensor up, so the highest point is a little below the peak allocated.
    """

    at: float
    phase: str
    bytes: dict[str, int]


@dataclass(frozen=True)
class LargeTensor:
    """One of the largest tensors alive at the peak.

    Attributes:
        category: As in ``Trial.breakdown``.
        module: The module that created it, or that owns the parameter, gradient or optimizer
            state, named as in ``model.named_modules()``; empty if there is none.
        operation: The operator that created it, such as ``aten.addmm``; empty for parameters.
    """

    size_bytes: int
    category: str
    module: str
    operation: str


@dataclass(frozen=True)
class Comparison:
    """Interleaved measurements of both batches, so that drift does not look like a gain.

    Attributes:
        current_samples_per_second: At the current batch, by round; each a trial in a fresh process.
        recommended_samples_per_second: At the recommended batch, by round.
        coverage: Probability that the interval contains the true speedup, from 0 to 1.
    """

    current_samples_per_second: list[float]
    recommended_samples_per_second: list[float]
    coverage: float


@dataclass(frozen=True)
class MeasuredOn:
    """Environment of a measurement. CUDA's fields are ``None`` or empty if unknown or without CUDA.

    Attributes:
        device: The driver's name for it; ``cpu`` or ``mps`` without CUDA.
        torch, transformers: Versions.
        cpu_threads: PyTorch's threads on the host.
        compute_capability: Such as ``8.6``.
        driver, cuda, cudnn: Versions of NVIDIA's driver, of CUDA and of cuDNN in PyTorch.
        allocator: Options as in ``PYTORCH_ALLOC_CONF``; empty for PyTorch's default.
        matmul_precision, convolution_precision: Format allowed for fp32 matrix products and
            convolutions: ``tf32``, ``ieee``, or ``none`` for PyTorch's default.
        cudnn_benchmark: Whether cuDNN benchmarks its algorithms.
        deterministic: Whether only deterministic algorithms are allowed.
        power_limit_watts: Enforced by the driver.
        clock_mhz, largest_clock_mhz: Multiprocessor clock just before a step, and its maximum.
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
    """The user's global batch as kept at the recommended batch.

    Attributes:
        size: Requested samples per optimizer step, over micro-batches and GPUs.
        gradient_accumulation: Micro-batches of the recommended size per optimizer step.
        kept_size: Resulting samples per optimizer step; above ``size`` only if no allowed batch
            size divides it evenly.
        otherwise: Change without accumulation, in a sentence.
    """

    size: int
    gradient_accumulation: int
    kept_size: int
    otherwise: str


@dataclass(frozen=True)
class BatchLengths:
    """The rows of a batch whose samples differ in length, in tokens and with their padding.

    Attributes:
        batch_size: Batch size.
        worst_tokens: Tokens of the longest row that comes in a run; memory is that of its batch.
        probability: Probability that no batch of a run has a longer row, from 0 to 1. Samples are
            assumed to be drawn independently.
        run_batches: Batches of a run.
        mean_tokens: Tokens of a row, on average over all batches; speed is that of this batch.
        padding: The share of all tokens that is padding, from 0 to 1.
    """

    batch_size: int
    worst_tokens: int
    probability: float
    run_batches: int
    mean_tokens: float
    padding: float


@dataclass(frozen=True)
class GpuOffer:
    """A workload on one of the GPUs that were compared, at the batch recommended there; predicted.

    Attributes:
        gpu: Its name in the catalogue.
        fits: Whether the smallest batch fits.
        is_sure: Whether the recommended batch fits even at the high end of its prediction.
        why_not: Reason why it does not fit; else empty.
        price_per_hour_usd: Price of one GPU, assumed.
        largest_batch_size: The largest batch that fits, per GPU.
        recommended_batch_size: The batch to train with there.
        samples_per_second: At that batch, on all GPUs that share the work.
        samples_per_second_low, samples_per_second_high: Its interval.
        usd_per_million_samples: At that speed, for all those GPUs.
    """

    gpu: str
    total_bytes: int
    fits: bool
    is_sure: bool = False
    why_not: str = ""
    price_per_hour_usd: float | None = None
    largest_batch_size: int = 0
    recommended_batch_size: int | None = None
    samples_per_second: float | None = None
    samples_per_second_low: float | None = None
    samples_per_second_high: float | None = None
    usd_per_million_samples: float | None = None


@dataclass(frozen=True)
class AnalysisResult:
    """The result of one analysis.

    Attributes:
        model_name: The model's display name; for a script, its factory.
        workload: The workload; ``None`` for a script.
        source: ``measured`` if both sides of the limit were measured, else ``predicted`` or
            ``computed``.
        next_batch_size: The next one up (by the batch multiple).
        next_batch_size_fails: Whether that one was tried and does not fit; false only if the search
            ended at its upper bound.
        recommended_batch_size: The batch size to train with: the current one, unless another that
            surely fits is worth a change (:mod:`engine.answer.worth`), or it may not fit.
        current_batch_size: As in the request; ``None`` if there is none yet.
        current_headroom_bytes: Device memory left unused at the current batch; ``None`` if there is
            none, or it does not fit.
        largest_headroom_bytes: The same at the largest batch.
        speedup: Samples per second at the recommended over the current batch; ``None`` if there is
            no current batch, or it does not fit.
        verdict: The decision, and what fits.
        curve: Memory vs. batch size for a chart; not part of the search.
        trials: Every batch size tried, in the order of trying.
        caveats: Caveats about these numbers.
        timeline: Memory over one step at the recommended batch, for a chart.
        largest_tensors: The largest tensors alive at its peak, largest first.
        certificate: Commands that repeat the trials on both sides of the limit.
        safe_batch_size: The largest batch that fits even at the high end of its prediction;
            ``None`` if the limit was measured. The recommended batch is never larger, unless this
            is zero.
        global_batch: The global batch as it is kept; ``None`` if none is set.
        speedup_low, speedup_high: The interval of ``speedup``. ``None`` without a speedup.
        comparison: The basis of a measured speedup; ``None`` if the two batches are the same, one
            does not fit, or nothing was measured.
        measured_on: ``None`` if nothing was measured.
        software: The versions that memory depends on, by package (torch, transformers, peft, …);
            empty if an older version of MemoryMark made it.
        decision: Decision in one sentence; empty as above.
        fastest_batch_size: The one with the best speed among those that surely fit; ``None`` as
            above.
        today: The trial of the current batch, where moves other than the batch are part of the
            answer: all ``trials`` are with those moves, and only this one is without. Else
            ``None``.
        lengths: Lengths of the recommended batch; ``None`` if all samples are of one length, or an
            older version made it.
        compared_gpus: The GPUs among which this one was chosen, or that a script's plan compared
            with it; empty where one was given.
        program_hash: Hash of what was traced of a script, the same wherever the same step is
            traced; empty for a workload, or if an older version made it.
    """

    model_name: str
    workload: Workload | None
    gpu: GpuFacts
    source: Source
    largest_batch_size: int
    next_batch_size: int
    next_batch_size_fails: bool
    recommended_batch_size: int
    current_batch_size: int | None
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
    software: dict[str, str] = field(default_factory=dict)
    decision: str = ""
    fastest_batch_size: int | None = None
    today: Trial | None = None
    lengths: BatchLengths | None = None
    compared_gpus: list[GpuOffer] = field(default_factory=list)
    program_hash: str = ""

    def to_dict(self) -> dict[str, object]:
        return asdict(self)
