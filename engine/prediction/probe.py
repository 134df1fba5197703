"""Predicts a trial: memory and time of one batch size, without a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..allocator.caching import DEFAULT_OPTIONS, ReplayResult
from ..allocator.options import AllocatorOptions
from ..core.choices import ZERO, Rollout
from ..core.sizes import gib
from ..gpus import Gpu, Vendor
from ..gpus.fixed_costs import CUDNN_BYTES, fixed_costs, uses_cudnn
from ..interface.trial import GpuFacts, Source, Trial
from ..interface.workload import Workload
from ..parallel.interconnect import link_bytes_per_second, nccl_bytes
from ..traces.lengths import samples_per_row
from ..tracing.trace import Operation, Trace
from ..tracing.unsure import peak_interval
from .memory.colocation import beside_vllm, vllm_bytes_in_update
from .memory.phases import judged_by_all_phases
from .timing.correction import UNCORRECTED, Correction
from .timing.intervals import RelativeRange, device_used_interval
from .timing.launch_queue import PASSES
from .timing.step_time import COLLECTIVE, host_decides, step_work, time_range
from .timing.work import StepTime, StepWork

COMPUTED_RANGE = RelativeRange(0.85, 1.15)
"""Assumed of memory that is in part arithmetic: little was published to hold it against."""

ROCM_RANGE = RelativeRange(0.85, 1.25)
"""Assumed of memory on AMD GPUs, whose libraries take workspaces that nobody here measured."""

NEARBY = 3
"""Samples more and fewer at which to check whether the allocator packs alike."""


def predict_trial(
    workload: Workload,
    gpu: Gpu,
    trace: Trace,
    allocator: AllocatorOptions = DEFAULT_OPTIONS,
    *,
    careful: bool = False,
    correction: Correction = UNCORRECTED,
) -> Trial:
    """Predict memory and time of one batch size on a catalogue GPU.

    Args:
        workload: The workload.
        gpu: The GPU.
        trace: Trace of that workload at that batch size, with that GPU's behaviour.
        allocator: The options of the caching allocator.
        careful: Whether its interval is widened where the allocator packs other batches nearby
            otherwise, which takes three times as long.
        correction: Correction of its step times by measured steps.
    """
    trial = predict_fit(workload, gpu, trace, allocator, careful=careful)
    if not trial.fits:  # a step that cannot run takes no time
        return trial
    step = predict_step(workload, gpu, trace)
    samples = samples_of_step(workload, trace)
    span = time_range(trace.operations, gpu, step)
    return timed(trial, step, samples, span, correction)


def predict_fit(
    workload: Workload,
    gpu: Gpu,
    trace: Trace,
    allocator: AllocatorOptions = DEFAULT_OPTIONS,
    *,
    careful: bool = False,
) -> Trial:
    """The same as :func:`predict_trial` without the time of its step."""
    facts = GpuFacts(gpu.display_name, gpu.total_bytes, usable_bytes(workload, gpu))
    costs = fixed_costs(gpu)
    trial = predict_memory(
        facts,
        trace,
        allocator,
        careful=careful,
        cudnn_bytes=costs.cudnn_bytes,
        unsure_bytes=costs.unsure_bytes,
    )
    if workload.parallelism in ZERO or workload.pipeline_parallel > 1:
        trial = computed(trial)
    trial = with_peak_interval(trial, *peak_interval(trace))
    if gpu.vendor is Vendor.AMD:
        trial = widened(trial, ROCM_RANGE)
    if workload.rollout is Rollout.VLLM:
        trial = beside_vllm(trial, workload, gpu, trace)
    return judged_by_all_phases(trial, workload, gpu, trace)


def usable_bytes(workload: Workload, gpu: Gpu) -> int:
    """Bytes that the caching allocator can have, less those of NCCL and of vLLM beside it."""
    others = nccl_bytes(workload.world_size) + vllm_bytes_in_update(workload, gpu.total_bytes)
    return max(0, gpu.usable_bytes - others)


def computed(trial: Trial) -> Trial:
    """A trial whose trace is in part arithmetic, with a wider interval of its memory."""
    return replace(widened(trial, COMPUTED_RANGE), source=Source.COMPUTED)


def widened(trial: Trial, span: RelativeRange) -> Trial:
    """A trial whose interval of memory is at least so wide."""
    used, low, high = (
        trial.device_used_bytes,
        trial.device_used_low_bytes,
        trial.device_used_high_bytes,
    )
    if used is None or low is None or high is None:
        return trial
    return replace(
        trial,
        device_used_low_bytes=min(low, span.low_bytes(used)),
        device_used_high_bytes=max(high, span.high_bytes(used)),
    )


def with_peak_interval(trial: Trial, lower: int, higher: int) -> Trial:
    """The trial as computed: its peak may be these bytes lower or higher than traced."""
    low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
    if not (lower or higher) or low is None or high is None:
        return trial
    return replace(
        trial,
        source=Source.COMPUTED,
        device_used_low_bytes=low - lower,
        device_used_high_bytes=high + higher,
    )


def samples_of_step(workload: Workload, trace: Trace) -> float:
    """Samples of one step, over its micro-batches and GPUs; in the mean, where that differs."""
    batches = workload.gradient_accumulation * workload.data_parallel
    return trace.batch_size * samples_per_row(workload) * batches


def operations_seconds(workload: Workload, gpu: Gpu, trace: Trace) -> float | None:
    """Predicted time of a step's operations on a GPU, to learn from measured steps.

    Returns:
        ``None`` where the step depends on a host of which nothing is known: its time says nothing
        of the GPU.
    """
    return comparable_seconds(predict_step(workload, gpu, trace))


def comparable_seconds(step: StepTime) -> float | None:
    """The same of a step that was predicted before."""
    return None if host_decides(step) else step.seconds


def predict_step(workload: Workload, gpu: Gpu, trace: Trace) -> StepTime:
    """Predicted time of a step, over its micro-batches, in its parts."""
    if workload.pipeline_parallel > 1:
        return _predict_stage(workload, gpu, trace)
    return work_of_step(workload, gpu, trace).timed()


def work_of_step(workload: Workload, gpu: Gpu, trace: Trace) -> StepWork:
    """The work of a step, over its micro-batches; not of a pipeline's."""
    accumulated = workload.gradient_accumulation
    link = link_bytes_per_second(gpu, workload.world_size)
    return step_work(trace.operations, gpu, workload.precision, accumulated, link)


def _predict_stage(workload: Workload, gpu: Gpu, trace: Trace) -> StepTime:
    """The step of a pipeline, as computed from one stage: all stages take as long as this one.

    With M micro-batches and S stages, a stage is busy in M of M + S - 1 slots and waits in the
    others (Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, section 2.2). What it sends is
    hidden behind its passes, except for the sums of split layers.
    """
    stages, micro_batches = workload.pipeline_parallel, workload.gradient_accumulation
    traced = min(micro_batches, stages)
    slots = (micro_batches + stages - 1) / traced
    link = link_bytes_per_second(gpu, workload.world_size)
    hidden = [one for one in trace.operations if one.name.startswith(COLLECTIVE)]
    rest = [one for one in trace.operations if not one.name.startswith(COLLECTIVE)]
    passes = [one for one in rest if one.phase in PASSES]
    others = [one for one in rest if one.phase not in PASSES]
    work, once = (
        step_work(operations, gpu, workload.precision, 1, link).timed()
        for operations in (passes, others)
    )
    sent = sum(_times_sent(one, workload, micro_batches / traced) for one in hidden) / link
    return StepTime(
        seconds=max(slots * work.seconds, sent) + once.seconds,
        gpu_seconds=slots * work.gpu_seconds + once.gpu_seconds,
        host_seconds=slots * work.host_seconds + once.host_seconds,
        filled=work.filled,
        fastest=max(slots * work.fastest, sent) + once.fastest,
        slowest=max(slots * work.slowest, sent) + once.slowest,
        ahead=max(slots * work.ahead, sent) + once.ahead,
    )


def _times_sent(operation: Operation, workload: Workload, more: float) -> float:
    """Bytes that a stage sends in a step: to its neighbours with each micro-batch.

    FSDP reduces gradients once. It gathers weights once too, where they stay gathered after
    forward.
    """
    gathers_again = workload.reshard_after_forward is not False
    once = _REDUCED if gathers_again else (*_REDUCED, _GATHERED)
    return operation.bytes_moved * (1 if operation.name in once else more)


_GATHERED = f"{COLLECTIVE}_allgather_base_"
_REDUCED = (f"{COLLECTIVE}_reduce_scatter_base_", f"{COLLECTIVE}allreduce_")


def timed(
    trial: Trial,
    step: StepTime,
    samples: float,
    span: RelativeRange,
    correction: Correction = UNCORRECTED,
) -> Trial:
    """The trial with the predicted time of its step.

    Args:
        trial: A trial that fits.
        step: Step time by its operations.
        samples: Samples of one step, over its micro-batches and GPUs.
        span: Range of the predicted time.
        correction: Correction of it by measured steps.
    """
    seconds = step.seconds * correction.factor(trial.batch_size)
    span = correction.narrowed(span)
    return replace(
        trial,
        step_seconds=seconds,
        samples_per_second=samples / seconds,
        step_seconds_low=seconds * span.low,
        step_seconds_high=seconds * span.high,
        operations_seconds=comparable_seconds(step),
    )


def predict_memory(
    gpu: GpuFacts,
    trace: Trace,
    allocator: AllocatorOptions = DEFAULT_OPTIONS,
    *,
    careful: bool = False,
    cudnn_bytes: int = CUDNN_BYTES,
    unsure_bytes: tuple[int, int] = (0, 0),
) -> Trial:
    """Predict the memory of one batch size on a GPU with PyTorch's caching allocator.

    It fits if the step's allocations, replayed through a model of the allocator, stay within what
    the CUDA context and the libraries leave. Where it does not, the memory figures say what it
    would need. See :func:`predict_trial` for ``careful``.

    Args:
        gpu: Its usable bytes are what the CUDA context leaves, with cuBLAS.
        trace: Trace of the step.
        allocator: The options of the caching allocator.
        careful: Whether to look at batches nearby.
        cudnn_bytes: Memory of cuDNN beside them, where the step uses it.
        unsure_bytes: Bytes fewer and more that the context may take.
    """
    if uses_cudnn(operation.name for operation in trace.operations):
        gpu = replace(gpu, usable_bytes=max(0, gpu.usable_bytes - cudnn_bytes))
    live, categories = trace.peak_by_category()
    need = within = trace.replay(None, allocator)
    jumps = _packing_jumps(trace, need, allocator) if careful else ()
    fits = need.peak_reserved_bytes <= gpu.usable_bytes
    if not fits and live <= gpu.usable_bytes:  # returning unused memory may be enough
        within = trace.replay(gpu.usable_bytes, allocator)
        fits = within.fits
    if fits:
        need = within
    # The allocator rounds each tensor up, so its peak is slightly above the sum of the tensors. The
    # difference goes to the activations, which are most of the tensors.
    categories["activations"] += need.peak_allocated_bytes - live
    used = need.peak_reserved_bytes + gpu.total_bytes - gpu.usable_bytes
    low, high = device_used_interval(
        used,
        gpu.total_bytes,
        jumps=jumps,
        convolves=convolves(trace.operations),
        unsure=unsure_bytes,
    )
    return Trial(
        batch_size=trace.batch_size,
        fits=fits,
        source=Source.PREDICTED,
        peak_allocated_bytes=need.peak_allocated_bytes,
        peak_reserved_bytes=need.peak_reserved_bytes,
        device_used_bytes=used,
        device_used_low_bytes=low,
        device_used_high_bytes=high,
        breakdown=categories,
        alloc_retries=within.retries if fits else None,
        failure="" if fits else _failure(need.peak_reserved_bytes, gpu),
    )


def convolves(operations: Iterable[Operation]) -> bool:
    """Whether there is a convolution among the operations."""
    return any("convolution" in operation.name for operation in operations)


def _packing_jumps(trace: Trace, need: ReplayResult, allocator: AllocatorOptions) -> list[int]:
    """Bytes that the allocator holds unused at batches nearby, less those at this one."""
    nearby = (trace.nearby(more) for more in (-NEARBY, NEARBY))
    replays = [other.replay(None, allocator) for other in nearby if other is not None]
    return [_unused_bytes(replay) - _unused_bytes(need) for replay in replays]


def _unused_bytes(replay: ReplayResult) -> int:
    return replay.peak_reserved_bytes - replay.peak_allocated_bytes


def predict_live_memory(limit_bytes: int, trace: Trace) -> Trial:
    """Predict the memory of one batch size without an allocator: the bytes of live tensors."""
    peak, breakdown = trace.peak_by_category()
    over = f"{peak:,} bytes of tensors needed, {limit_bytes:,} allowed"
    return Trial(
        batch_size=trace.batch_size,
        fits=peak <= limit_bytes,
        source=Source.PREDICTED,
        peak_allocated_bytes=peak,
        breakdown=breakdown,
        failure="" if peak <= limit_bytes else f"out of memory: {over}",
    )


def _failure(needed_bytes: int, gpu: GpuFacts) -> str:
    return (
        f"out of memory: the caching allocator would reserve {gib(needed_bytes)}, and "
        f"{gpu.name} has {gib(gpu.usable_bytes)} for it"
    )
