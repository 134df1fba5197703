"""Assumptions about several GPUs: NCCL's memory, their links, when they synchronise."""

from __future__ import annotations

from ..core.choices import ZERO, Parallelism, Precision, ReduceDtype, Rotation
from ..core.sizes import gib
from ..gpus import Gpu
from ..interface.workload import Workload
from ..step.training import trainable_parameter_count

NCCL_PAIR_BYTES = 544 * 2**20
NCCL_GROUP_BYTES = 688 * 2**20
"""Assumed memory of an NCCL communicator of two GPUs, and of more, outside the caching allocator.

Measured on A100 with NVLink (https://github.com/NVIDIA/nccl/issues/964, 2023-08-16). It grows with
the channels and their buffers (``NCCL_MAX_NCHANNELS``, ``NCCL_BUFFSIZE``), so machines differ.
"""

GPUS_PER_NODE = 8
"""Assumed: with more GPUs, the network between machines is the slowest link of the ring."""

LINK_EFFICIENCY = 0.75
"""Assumed share of a link's peak rate that large collective operations reach."""

_NETWORK = 50e9
_PCIE = 31.5e9
_NVLINK = {
    "v100-16gb": 150e9,
    "v100-32gb": 150e9,
    "a100-40gb": 300e9,
    "a100-80gb": 300e9,
    "h100": 450e9,
    "h200": 450e9,
    "h20": 450e9,
    "gh200": 450e9,
    "b200": 900e9,
    "b300": 900e9,
    "gb200": 900e9,
    "mi300x": 448e9,
    "mi325x": 448e9,
    "mi355x": 537e9,
}
# Peak rates in bytes per second and direction, assumed from general knowledge: NVLink 2 to 5 of the
# SXM modules, the seven Infinity Fabric links of AMD's, PCIe 4.0 with 16 lanes for every other GPU,
# 400 Gbit/s of network for each GPU.


def nccl_bytes(world_size: int) -> int:
    """Device memory that NCCL is assumed to take on each GPU that shares the work."""
    if world_size == 1:
        return 0
    return NCCL_PAIR_BYTES if world_size == 2 else NCCL_GROUP_BYTES


def link_bytes_per_second(gpu: Gpu, world_size: int) -> float:
    """Assumed rate at which each GPU sends to the next one in the ring."""
    peak = _NVLINK.get(gpu.name, _PCIE)
    return LINK_EFFICIENCY * (min(peak, _NETWORK) if world_size > GPUS_PER_NODE else peak)


def caveats(workload: Workload, gpu: Gpu) -> list[str]:
    """Assumptions of predictions for several GPUs; empty for one GPU."""
    if workload.world_size == 1:
        return []
    of = "per GPU" if workload.data_parallel == workload.world_size else "per group of GPUs"
    return [
        f"Memory is per GPU, batch sizes are {of}, and samples per second are for all "
        f"{workload.world_size:,} GPUs together. {_nccl_caveat(workload.world_size)}",
        *_split_caveats(workload),
        *_gradient_caveats(workload),
        *accumulation_caveats(workload),
        _link_caveat(workload.world_size, gpu),
    ]


def script_caveats(world_size: int, gpu: Gpu | None, divided_by: int = 1) -> list[str]:
    """The same of a script that shares its steps.

    Args:
        world_size: Number of GPUs.
        gpu: Each of them; ``None`` where the answer is about several kinds.
        divided_by: Number of them that the script divides its batch among.
    """
    if world_size == 1:
        return []
    of_one = "Memory, batch sizes and" if divided_by == 1 else "Memory and"
    return [
        f"The script was traced as the first of {world_size:,} processes. {of_one} samples per "
        f"second are of one GPU. {_nccl_caveat(world_size)}",
        *([] if gpu is None else [_link_caveat(world_size, gpu)]),
    ]


def _nccl_caveat(world_size: int) -> str:
    return f"NCCL is assumed to take {nccl_bytes(world_size) / 2**20:,.0f} MiB on each."


def _link_caveat(world_size: int, gpu: Gpu) -> str:
    rate = link_bytes_per_second(gpu, world_size) / 1e9
    return (
        f"GPUs are assumed to send each other {rate:,.0f} GB/s, hidden behind computation. Real "
        "steps hide less."
    )


def _split_caveats(workload: Workload) -> list[str]:
    if workload.pipeline_parallel > 1:
        return [
            f"Assumes PyTorch's 1F1B schedule on {workload.pipeline_parallel:,} stages of "
            f"{workload.stage_layers or 'as many'} layers{'' if workload.stage_layers else ' each'}"
            "; gradient accumulation is the number of micro-batches. Memory is that of the fullest "
            "stage, traced. The step time is computed from that stage, as if all took as long, "
            "with the slots in which a stage waits.",
            *_sharded_stage_caveats(workload),
            *_tensor_caveats(workload),
        ]
    return [
        *_tensor_caveats(workload),
        *_context_caveats(workload),
        *_expert_caveats(workload),
    ]


def _sharded_stage_caveats(workload: Workload) -> list[str]:
    if workload.parallelism is not Parallelism.FSDP:
        return []
    return [
        "FSDP reduces the gradients of a stage once, after its last micro-batch, as PyTorch's "
        "stages have it: until then they are whole on each GPU, and so are the weights in backward."
    ]


def _context_caveats(workload: Workload) -> list[str]:
    if workload.context_parallel == 1:
        return []
    part = (workload.sequence_length or 0) // workload.context_parallel
    around = (
        "gathers all keys and values of a layer at once"
        if workload.context_rotation is Rotation.ALL_GATHER
        else "passes keys and values from GPU to GPU"
    )
    return [
        f"Assumes PyTorch's context_parallel, as Accelerate and the Trainer call it: each of "
        f"{workload.context_parallel:,} GPUs has {part:,} tokens of every sequence, and as many "
        f"logits. Attention {around} and sums their gradients in fp32; the step waits for both. "
        "Batches are assumed to have an attention_mask of ones: without one, transformers makes "
        f"its own on each GPU, of {part:,} by {part:,} tokens."
    ]


def _expert_caveats(workload: Workload) -> list[str]:
    count = workload.expert_parallel
    if count == 1:
        return []
    routed = (
        "Each GPU is assumed to get as many tokens for its experts as it sends. Routing is seldom "
        f"that even: expert_load 150 predicts a GPU that gets half as many more, {100 * count:,} "
        "one that gets all."
        if workload.expert_load == 100
        else f"The fullest GPU is assumed to get {workload.expert_load:,}% of the tokens of the "
        "mean one; it is the one predicted."
    )
    return [
        f"Assumes transformers' expert parallelism (ep_size, all_to_all): each of {count:,} GPUs "
        f"has 1/{count:,} of the experts, sharded among {workload.shard_count // count:,}. "
        f"{routed} The step waits for tokens to arrive."
    ]


def _tensor_caveats(workload: Workload) -> list[str]:
    if workload.tensor_parallel == 1:
        return []
    between = "split along the sequence" if workload.sequence_parallel else "whole on each"
    return [
        f"Assumes that PyTorch's parallelize_module splits each layer among "
        f"{workload.tensor_parallel:,} GPUs by transformers' plan for the model. What lies between "
        f"the layers is {between}; the logits are whole. The step waits for every sum."
    ]


def _gradient_caveats(workload: Workload) -> list[str]:
    return [] if workload.parallelism is Parallelism.NONE else [_gradient_caveat(workload)]


def _gradient_caveat(workload: Workload) -> str:
    if workload.parallelism in ZERO:
        return (
            f"{workload.parallelism} is computed: the traced step of one GPU, with what DeepSpeed "
            f"0.19's source says it keeps and moves, in buckets of {workload.bucket_elements:,} "
            "gradients. DeepSpeed itself was not run."
        )
    if workload.parallelism is Parallelism.FSDP:
        groups = workload.weight_sharers // workload.shard_count
        sharding = (
            "full sharding"
            if groups == 1
            else f"sharding among {workload.shard_count:,} GPUs, {groups:,} times over,"
        )
        return (
            f"Assumes {sharding} with PyTorch's fully_shard (FSDP2), on each repeated block and "
            f"on the rest of the model.{_first_fsdp_caveat(workload)}"
        )
    if workload.gradient_as_bucket_view:
        return "Gradients are stored in DistributedDataParallel's buckets only."
    return (
        "Gradients are stored twice, as DistributedDataParallel does by default: for the optimizer "
        "and in its buckets. With gradient_as_bucket_view they are stored in the buckets only."
    )


def _first_fsdp_caveat(workload: Workload) -> str:
    """Memory that published runs of LoRA and QLoRA took beyond this; see docs/methods.md."""
    if workload.lora_rank is None:
        return ""
    return (
        " With adapters, FSDP1 (Accelerate's default; fsdp_version: 2 changes it) took 10% to 14% "
        "more in published runs."
    )


def accumulation_caveats(workload: Workload) -> list[str]:
    """Caveat about gradients between micro-batches on several GPUs; empty without accumulation.

    The step here synchronises after each of them. Many loops do not: Hugging Face Accelerate, for
    one, skips it by default.
    """
    if workload.gradient_accumulation == 1 or workload.parallelism in (Parallelism.NONE, *ZERO):
        return []
    if workload.pipeline_parallel > 1:
        return []
    synchronised = "Gradients are synchronised after every micro-batch."
    if workload.parallelism is Parallelism.DDP:
        return [
            f"{synchronised} Loops that accumulate with no_sync() communicate less, and use the "
            "same memory."
        ]
    more = unsynchronised_bytes(workload)
    needs = f"up to {gib(more)} more" if more > 0 else "no more memory in this case"
    return [
        f"{synchronised} Loops that accumulate with no_sync() keep unsharded gradients on each "
        f"GPU, which takes {needs}."
    ]


def unsynchronised_bytes(workload: Workload) -> int:
    """Most additional bytes for FSDP if gradients are not synchronised between micro-batches.

    Each GPU then keeps all gradients, in the number format that they are reduced in, in the place
    of its share of them, in the parameters' format.
    """
    count = trainable_parameter_count(workload)
    own = 2 if workload.precision is Precision.BF16_TRUE else 4
    reduced = 4 if workload.precision in (Precision.FP32, Precision.TF32) else 2
    reduced = {ReduceDtype.FP32: 4, ReduceDtype.BF16: 2}.get(workload.reduce_dtype, reduced)
    return count * reduced - count * own // workload.shard_count
