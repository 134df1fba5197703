"""Caveats of a prediction, in sentences."""

from __future__ import annotations

from ..answer.ladder import listed
from ..answer.search import SearchOutcome
from ..core.choices import Quantization
from ..core.numbers import ms
from ..core.sizes import gib
from ..gpus import Gpu, Vendor
from ..interface.request import MAX_BATCH_SIZE, Request
from ..interface.trial import Trial
from ..interface.workload import Workload
from ..models.tasks import Task
from ..tracing.trace import Trace
from .probe import ROCM_RANGE, convolves
from .timing.host import offload_caveats
from .timing.intervals import RelativeRange, memory_range
from .timing.launches import LAUNCH_RANGE
from .timing.step_time import GUESSED, host_decides
from .timing.work import StepTime

NOTHING_RUN = (
    "Nothing was run. Memory is predicted by tracing the training step and replaying its "
    "allocations through a model of PyTorch's caching allocator."
)
ALONE = "Assumes nothing else is using the GPU. Other processes or a display leave less memory."
_CONVOLUTIONS = (
    "cuDNN's convolution workspaces are predicted by a rule that was fitted on an H100, and not at "
    "all for GPUs before it. cuDNN uses smaller ones when memory is short."
)
_WORTH_TELLING = 1.05
"""The least that a step without waiting has to be faster."""
_EXPERTS_MODULE = ".experts"
"""How the names of modules end that hold the weights of all experts of a layer."""
_SENT_TO_OTHERS = "_c10d_functional.all_to_all_single"
_EXPERTS = (
    "Memory is the same however tokens are routed to experts, so this is the worst case too. Step "
    "times assume that the experts share the tokens evenly."
)


def gpu_caveats(gpu: Gpu) -> list[str]:
    """Caveats of predictions for a kind of GPU; empty for most."""
    return [*_rocm_caveats(gpu), *checked_caveats(gpu)]


def _rocm_caveats(gpu: Gpu) -> list[str]:
    """Caveats of predictions for AMD GPUs; empty for others."""
    if gpu.vendor is not Vendor.AMD:
        return []
    return [
        f"Memory on {gpu.display_name} is predicted as on NVIDIA GPUs, since PyTorch's allocator "
        "is the same on ROCm. Not known are the workspaces of its libraries (MIOpen, hipBLASLt), "
        "what they hold outside PyTorch (1 GiB is assumed), and when attention falls back to a "
        f"kernel that keeps the whole matrix. So memory may be off by {ROCM_RANGE}.",
        "Step times on AMD GPUs are a guess, as if they reached an A100's shares of their peak "
        f"rates: no such step was measured. They may be off by {GUESSED}, so these GPUs are not "
        "ranked by speed or cost.",
    ]


def checked_caveats(gpu: Gpu) -> list[str]:
    """Caveat on values of a GPU that a self-check measured; empty without one."""
    if gpu.checked is None:
        return []
    measured = [f"GPU memory ({gib(gpu.total_bytes)})"]
    if gpu.sources["context_bytes"] == gpu.checked.where:
        measured.append(f"the CUDA context ({gpu.context_bytes / 2**20:,.1f} MiB)")
    if (launching := gpu.launch_seconds) is not None:
        span = "" if gpu.launch_range is None else _microseconds(gpu.launch_range)
        measured.append(f"the time to launch an operation ({span or f'{1e6 * launching:.0f}'} µs)")
    return [f"{listed(measured)} were {gpu.checked.where}."]


def _microseconds(seconds: tuple[float, float]) -> str:
    low, high = seconds
    return f"{1e6 * low:.0f} to {1e6 * high:.0f}"


def host_caveats(batch_size: int, step: StepTime, gpu: Gpu) -> list[str]:
    """Caveat that the speed of a batch depends on the machine's CPU, where that is not known well.

    Args:
        batch_size: The current batch, or the recommended one without a current one.
        step: Step time of that batch.
        gpu: With what is known of its host.
    """
    if not host_decides(step):
        return []
    fast, slow = (f"{1e6 * seconds:.0f}" for seconds in gpu.launch_range or LAUNCH_RANGE)
    why = (
        "as assumed of fast and slow machines. memorymark selfcheck measures it; the launch time "
        "can be set too."
        if gpu.launch_range is None
        else "as models of different sizes do on a machine with this self-check. A recorded run of "
        "this workload tells it exactly."
    )
    return [
        f"How fast batch {batch_size:,} is depends on the machine's CPU: a step is predicted to "
        f"take {ms(step.fastest)} if it launches an operation in {fast} µs, and "
        f"{ms(step.slowest)} if it takes {slow} µs, {why}"
    ]


def waiting_caveats(batch_size: int, step: StepTime) -> list[str]:
    """Caveat that a step would be faster if its host did not wait for the GPU within it.

    Args:
        batch_size: The current batch, or the recommended one without a current one.
        step: Step time of that batch.
    """
    if step.seconds < _WORTH_TELLING * step.ahead:
        return []
    return [
        f"At batch {batch_size:,} the step takes {ms(step.seconds)}, of which "
        f"{ms(step.seconds - step.ahead)} are for waiting (predicted): where it reads "
        "a value from the GPU (.item(), .cpu(), if, a boolean mask as an index), the CPU cannot "
        "launch what comes next until the GPU is done."
    ]


def caveats_of(
    step: Trace, recommended: Trial, outcome: SearchOutcome, safe: int, waits: int | None
) -> list[str]:
    """Caveats of a prediction.

    Args:
        step: The trace of the recommended batch.
        recommended: Its trial.
        outcome: Outcome of the search.
        safe: The largest batch that surely fits.
        waits: The current batch, if its step is limited by kernel launches.
    """
    found = trial_caveats(recommended)
    if waits is not None:
        found.append(
            f"At batch {waits:,} the step is limited by kernel launches: a larger batch costs "
            "almost no time. CUDA graphs or compile would help too."
        )
    span = _memory_range(recommended)
    off = f"{str(recommended.source).capitalize()} memory may be off by {span}"
    if safe == 0:
        found.append(f"{off}. No batch is certain to fit on this GPU.")
    elif safe < outcome.largest_batch_size:
        found.append(f"{off}. Batch {safe:,} fits even at the high end.")
    found += step_caveats(step)
    if not outcome.next_batch_size_fails:
        found.append(f"Batches above {MAX_BATCH_SIZE:,} were not tried.")
    return found


def trial_caveats(trial: Trial) -> list[str]:
    """Caveats of the numbers of one batch."""
    found = [ALONE]
    if (off_by := _time_range(trial)) is not None:
        found.insert(0, f"Predicted step times may be off by {off_by}. Ratios are more reliable.")
    return found


def step_caveats(step: Trace) -> list[str]:
    """Caveats of the trace of one batch."""
    found = [_CONVOLUTIONS] if convolves(step.operations) else []
    found += [*offload_caveats(step), *step.caveats]
    names = {operation.name for operation in step.operations}
    if _has_experts(step) and _SENT_TO_OTHERS not in names:
        found.append(_EXPERTS)
    return found


def whole_experts(workload: Workload, step: Trace) -> list[str]:
    """Caveat that quantization leaves the experts of a mixture alone, if it has any."""
    if workload.quantization is Quantization.NONE or not _has_experts(step):
        return []
    return [
        "bitsandbytes quantizes linear layers only. The experts of this model are not such layers, "
        f"so they stay in 16 or 32 bits, as {workload.precision} has them."
    ]


def _has_experts(step: Trace) -> bool:
    return any(module.endswith(_EXPERTS_MODULE) for module in set(step.modules))


COMPARED = (Task.SENTENCE_EMBEDDING, Task.CONTRASTIVE)
"""Tasks that compare each sample with all others of its micro-batch."""


def negatives_caveats(workload: Workload) -> list[str]:
    """Caveat that the batch affects learning, where samples are compared with each other."""
    if workload.task not in COMPARED:
        return []
    return [
        "Each sample is compared with all others of its batch, so another batch learns something "
        "else, and accumulated gradients do not make up for it. GradCache does "
        "(CachedMultipleNegativesRankingLoss in sentence-transformers): it encodes a large batch "
        "in parts. A part takes what a batch as large takes here with --gradient-accumulation 2, "
        "and the embeddings come on top."
    ]


def _memory_range(trial: Trial) -> RelativeRange:
    """Relative range of memory: that of the trial's own interval, which depends on the model."""
    used, low, high = (
        trial.device_used_bytes,
        trial.device_used_low_bytes,
        trial.device_used_high_bytes,
    )
    if not used or low is None or high is None:
        return memory_range()
    return RelativeRange(low / used, high / used)


def _time_range(trial: Trial) -> RelativeRange | None:
    seconds, low, high = trial.step_seconds, trial.step_seconds_low, trial.step_seconds_high
    if seconds is None or low is None or high is None:
        return None
    return RelativeRange(low / seconds, high / seconds)


def smaller_multiple_caveat(request: Request, batch_multiple: int) -> list[str]:
    """Caveat that the batch multiple was given up, if it was."""
    if batch_multiple == request.batch_multiple:
        return []
    counts = (
        "every batch size counts"
        if batch_multiple == 1
        else f"multiples of {batch_multiple:,} count"
    )
    return [f"No multiple of {request.batch_multiple:,} fits, so {counts}."]
