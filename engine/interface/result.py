"""The result of an analysis as plain data: trials, verdict and savings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from .trial import GpuFacts, Source, Trial
from .workload import Workload


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
class TensorGroup:
    """Tensors alive at the peak that one operator created in one module, of all equal layers.

    Attributes:
        module: As of a :class:`LargeTensor`, with ``*`` for the numbers of layers.
        operation: As of a :class:`LargeTensor`.
        category: As in ``Trial.breakdown``.
        count: Number of tensors.
        size_bytes: Bytes of all of them.
    """

    module: str
    operation: str
    category: str
    count: int
    size_bytes: int


@dataclass(frozen=True)
class OperationTime:
    """The kernels of one operator in a training step.

    Attributes:
        operation: Such as ``aten.addmm``.
        count: Number of kernels.
        seconds: Predicted time of all of them on the GPU, without waiting for the host.
    """

    operation: str
    count: int
    seconds: float


@dataclass(frozen=True)
class StepProfile:
    """Parts of a training step's memory and time, so that two steps can be compared.

    Attributes:
        batch_size: Samples per step.
        peak_phase: Phase of the step in which most bytes are alive, as of a ``TimelinePoint``.
        tensors: All tensors alive at the peak, the largest group first.
        operations: All kernels of the step, the longest group first.
    """

    batch_size: int
    peak_phase: str
    tensors: list[TensorGroup]
    operations: list[OperationTime]


class PhaseName(StrEnum):
    """Phases of a training run that have peaks of their own."""

    LOADING = "loading"
    STEP = "training step"
    LATER_STEP = "later training step"
    EVALUATION = "evaluation"
    GENERATION = "generation"
    SAVING = "saving"


@dataclass(frozen=True)
class Phase:
    """One phase of a training run, at the recommended batch.

    Attributes:
        peak_device_bytes: Most bytes of tensors on one GPU.
        peak_host_bytes: Most bytes of one process on the host, beside Python and its libraries.
        host_processes: Processes on a node that take that at once, assumed from 8 GPUs a node.
        source: ``predicted`` from a trace, or ``computed`` from the weights.
        how: How weights, logits or offloaded tensors come to the host, in a sentence.
    """

    name: PhaseName
    peak_device_bytes: int
    peak_host_bytes: int
    host_processes: int
    source: Source
    how: str


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
class OptimizerStep:
    """One optimizer step of a script, as its trace saw it.

    Attributes:
        optimizers: Classes of the optimizers that stepped, such as ``AdamW``.
        current_micro_batches: Micro-batches of the current size to one optimizer step.
        recommended_micro_batches: Micro-batches of the recommended size to one.
        gpus: GPUs whose batches add up.
    """

    optimizers: list[str]
    current_micro_batches: int
    recommended_micro_batches: int
    gpus: int


@dataclass(frozen=True)
class KeptBatch:
    """A script's global batch of today, split into fewer and larger micro-batches; predicted.

    Attributes:
        batch_size: Samples of a micro-batch, which surely fits.
        micro_batches: Micro-batches to one optimizer step.
        samples_per_second: At that split.
        speedup: Speedup over today's split.
        speedup_low, speedup_high: Its interval.
    """

    batch_size: int
    micro_batches: int
    samples_per_second: float
    speedup: float
    speedup_low: float
    speedup_high: float


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
        phases: The peaks of loading, training step, evaluation, generation and saving, on GPU and
            host; empty for a script, if the answer was measured, or if an older version made it.
        limiting_phase: The phase in which the next batch size does not fit; ``None`` as above.
        optimizer_step: The optimizer step of a script; ``None`` for a workload, without a current
            batch, or if it was not traced.
        kept_batch: The best other split of a script's global batch, for one that accumulates;
            ``None`` if none is worth a change, if none was looked for, or for a workload.
        profile: Parts of the step at the current batch, or at the recommended one where there is
            none; ``None`` if it was measured, or an older version made it.
        move_lines: The lines of code that make the moves in a script; empty without moves, and for
            a workload.
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
    phases: list[Phase] = field(default_factory=list)
    limiting_phase: PhaseName | None = None
    optimizer_step: OptimizerStep | None = None
    kept_batch: KeptBatch | None = None
    profile: StepProfile | None = None
    move_lines: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)
