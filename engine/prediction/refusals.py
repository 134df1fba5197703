"""The error for a workload that does not fit, with what would help it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.choices import Parallelism, Quantization, Rollout
from ..core.errors import DoesNotFit
from ..core.optimizers import Optimizer
from ..core.sizes import gib_of
from ..interface.request import AnalysisRequest
from ..interface.trial import GpuFacts, Trial
from ..interface.workload import Workload


def does_not_fit(
    request: AnalysisRequest, smallest: Trial, gpu: GpuFacts, caveats: Sequence[str] = ()
) -> DoesNotFit:
    """The error for a workload whose smallest batch does not fit, with what to try.

    Args:
        request: The workload.
        smallest: Its trial.
        gpu: The GPU.
        caveats: Further caveats.
    """
    needed = smallest.device_used_bytes or smallest.peak_allocated_bytes
    needs = "is too large"
    if needed is not None:
        needs = f"needs {gib_of(needed, gpu.total_bytes)}"
    name = request.workload.preset.display_name
    hints = ", ".join(_hints(request, smallest))
    told = f"{name} does not fit on {gpu.name}: even batch {smallest.batch_size:,} {needs}."
    return DoesNotFit(" ".join([told, f"Try {' or '.join(hints.rsplit(', ', 1))}.", *caveats]))


def fits_on_none(request: AnalysisRequest, nearest: object) -> DoesNotFit:
    """The error for a workload that fits on no GPU, with the one where it nearly does."""
    return DoesNotFit(
        f"{request.workload.preset.display_name} fits on no catalogue GPU. The nearest is "
        f"{nearest}. Try gradient checkpointing, LoRA, several GPUs or a shorter sequence."
    )


_OF_THE_MODEL = ("parameters", "gradients", "optimizer_state", "casts")


def _hints(request: AnalysisRequest, smallest: Trial) -> list[str]:
    """Changes that may make a workload fit, the cheapest first."""
    workload = request.workload
    hints = []
    if not workload.gradient_checkpointing:
        hints.append("gradient checkpointing")
    elif workload.checkpoint_every > 1:
        hints.append("recomputing every layer")
    of_the_model = sum(smallest.breakdown.get(name, 0) for name in _OF_THE_MODEL)
    if 2 * of_the_model > (smallest.peak_allocated_bytes or 0):
        hints += _smaller_models(workload)
    divided = workload.parallelism in (Parallelism.FSDP, Parallelism.ZERO_3)
    if divided and not (workload.cpu_offload or workload.optimizer_offload):
        hints.append("offloading the shards to the host")
    if divided:
        hints.append("more GPUs")
    if workload.rollout is Rollout.VLLM:
        hints.append("a smaller share for vLLM" if workload.vllm_sleep else "vLLM's sleep mode")
    limited = request.memory_limit_bytes is not None
    hints.append("a larger memory limit" if limited else "a GPU with more memory")
    hints.append("a shorter sequence" if workload.sequence_length else "smaller images")
    return hints


def _smaller_models(workload: Workload) -> list[str]:
    """Changes that shrink weights and their state, where they combine with the workload."""
    trains_all = workload.lora_rank is None and not workload.frozen_backbone
    ways: list[tuple[str, dict[str, Any]]] = []
    if trains_all and workload.optimizer is not Optimizer.NONE:
        if not workload.optimizer_in_backward:
            ways.append(("the optimizer in backward", {"optimizer_in_backward": True}))
        ways.append(("LoRA", {"lora_rank": 16}))
    elif workload.quantization is Quantization.NONE:
        ways.append(("weights in 4 bits (nf4)", {"quantization": Quantization.NF4}))
    return [way for way, changed in ways if workload.takes(changed)]
