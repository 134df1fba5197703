"""vLLM on the GPU that trains: what it leaves to the update, and what both take while it generates.

TRL's ``vllm_mode="colocate"`` runs vLLM within the training process. It takes a share of the GPU
when it starts and fills what its weights leave of that with its cache; asleep, it gives both back.
Before it wakes, TRL empties the cache of PyTorch's allocator. Then it hands over the weights, one
at a time: those that GPUs divide are gathered for that. The cache of one that slept is not there
yet. Sources: ``VLLMGeneration`` and ``GRPOConfig`` in TRL 1.16; ``gpu_memory_utilization`` and
sleep mode in vLLM's documentation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache

from ...core.choices import Parallelism, Precision, Rollout
from ...core.sizes import gib
from ...gpus import Gpu
from ...interface.trial import Source, Trial
from ...interface.workload import Workload
from ...step.methods import trained_in
from ...traces.tracer import meta_model
from ...tracing.trace import Trace

OUTSIDE_BYTES = 774 * 2**20
"""Assumed memory of vLLM beside weights and cache, such as CUDA graphs: that of a separate process
asleep, with its CUDA context (Llama 3.2 1B, https://github.com/NVIDIA-NeMo/RL/issues/223)."""


def vllm_bytes_in_update(workload: Workload, total_bytes: int) -> int:
    """GPU memory of vLLM while the model is updated; 0 where it is not there."""
    if workload.rollout is not Rollout.VLLM:
        return 0
    return OUTSIDE_BYTES if workload.vllm_sleep else _share_bytes(workload, total_bytes)


def beside_vllm(trial: Trial, workload: Workload, gpu: Gpu, trace: Trace) -> Trial:
    """A trial of the update, judged with vLLM's generation too: it is computed.

    Args:
        trial: Trial of the update, in what vLLM leaves of the GPU.
        workload: The workload, whose completions vLLM generates beside it.
        gpu: The GPU.
        trace: Trace of the update.
    """
    used, low, high = (
        trial.device_used_bytes or 0,
        trial.device_used_low_bytes or 0,
        trial.device_used_high_bytes or 0,
    )
    if workload.vllm_sleep:
        low -= OUTSIDE_BYTES
    else:
        high += OUTSIDE_BYTES
    awake = _awake_bytes(workload, gpu, trace)
    failure = trial.failure
    if awake > gpu.total_bytes:
        failure = failure or (
            f"out of memory: vLLM and what training keeps between updates take {gib(awake)} while "
            f"it generates, and {gpu.display_name} has {gib(gpu.total_bytes)}"
        )
    failure = why_vllm_fails(workload, gpu) or failure
    return replace(
        trial,
        source=Source.COMPUTED,
        fits=not failure,
        failure=failure,
        device_used_bytes=max(used, awake),
        device_used_low_bytes=max(low, awake),
        device_used_high_bytes=max(high, awake + OUTSIDE_BYTES),
    )


def why_vllm_fails(workload: Workload, gpu: Gpu) -> str:
    """The sentence for a share that is smaller than the model's weights; empty if it is larger."""
    if workload.rollout is not Rollout.VLLM:
        return ""
    share, weights = _share_bytes(workload, gpu.total_bytes), _handed_over(workload).loaded
    if weights < share:
        return ""
    least = 100 * weights // gpu.total_bytes + 1
    helps = f"set it to more than {least}%" if least < 95 else "choose a GPU with more memory"
    return (
        f"vLLM does not start: its {workload.vllm_share}% of {gpu.display_name} are {gib(share)}, "
        f"and its part of the model's weights takes {gib(weights)}; {helps} or let a server "
        "generate"
    )


def vllm_caveats(workload: Workload, gpu: Gpu, trace: Trace) -> list[str]:
    """Caveats: memory kept for vLLM, which of update and generation needs more, and assumptions.

    Args:
        workload: The workload, whose completions vLLM may generate beside it.
        gpu: The GPU.
        trace: Trace of a batch that fits.
    """
    if workload.rollout is not Rollout.VLLM:
        return []
    share = _share_bytes(workload, gpu.total_bytes)
    of_gpu = f"{workload.vllm_share}% of the GPU's memory, {gib(share)},"
    assumed = f"{OUTSIDE_BYTES / 2**20:,.0f} MiB"
    if not workload.vllm_sleep:
        return [
            f"vLLM has {of_gpu} all the time; training has the rest. So the update decides, unless "
            "all weights are gathered to be handed to vLLM: nothing else of training is there "
            f"while it generates. Assumed: up to {assumed} beside its share, such as for CUDA "
            "graphs."
        ]
    held = sum(trace.held_between_steps().values())
    awake = bytes_in_generation(workload, gpu, trace)
    updating = max(trace.peak_by_phase().values()) + OUTSIDE_BYTES
    more = "generation" if awake > updating else "the update"
    return [
        f"Of generation and update, {more} needs more memory: vLLM takes {of_gpu} beside "
        f"{gib(held)} that training keeps, and sleeps during the update, which peaks at "
        f"{gib(updating)} with {assumed} that are assumed to stay with vLLM. While it wakes, "
        "PyTorch's allocator is assumed to keep nothing unused."
    ]


def bytes_in_generation(workload: Workload, gpu: Gpu, trace: Trace) -> int:
    """Memory of vLLM and training while vLLM generates, beside the CUDA context."""
    return _awake_bytes(workload, gpu, trace) - gpu.context_bytes


def _share_bytes(workload: Workload, total_bytes: int) -> int:
    return total_bytes * workload.vllm_share // 100


def _awake_bytes(workload: Workload, gpu: Gpu, trace: Trace) -> int:
    """The most used of the GPU while vLLM is handed the weights, and generates."""
    held = sum(trace.held_between_steps().values())
    share, weights = _share_bytes(workload, gpu.total_bytes), _handed_over(workload)
    if workload.vllm_sleep:
        return gpu.context_bytes + held + max(share, weights.loaded + weights.gathered)
    return gpu.context_bytes + held + share + weights.gathered


@dataclass(frozen=True)
class _Weights:
    """Weights that are handed to vLLM.

    Attributes:
        loaded: Bytes in one GPU's vLLM: 16 bits each, or packed like the policy's.
        gathered: Bytes that training gathers at a time, where GPUs divide them.
    """

    loaded: int
    gathered: int


def _handed_over(workload: Workload) -> _Weights:
    return _counted(json.dumps(workload.to_dict()))


@cache  # building a model on the meta device takes a second
def _counted(fields: str) -> _Weights:
    workload = Workload.parse(json.loads(fields))
    policy = trained_in(meta_model(workload))[0]
    sizes = [
        2 * one.numel() if one.is_floating_point() else one.nbytes for one in policy.parameters()
    ]
    gathered = 0
    if workload.parallelism is Parallelism.FSDP:  # ``full_tensor``, in the format of the shards
        gathered = max(sizes) * (1 if workload.precision is Precision.BF16_TRUE else 2)
    elif workload.parallelism is Parallelism.ZERO_3:  # adapters are merged into whole weights
        gathered = max(sizes) if workload.lora_rank is None else sum(sizes)
    return _Weights(sum(sizes) // workload.vllm_tensor_parallel, gathered)
