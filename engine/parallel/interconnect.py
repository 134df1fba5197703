"""What lies between several GPUs: NCCL's own memory, and how fast they talk. All of it assumed."""

from __future__ import annotations

from engine.gpus import Gpu
from engine.workload import Parallelism, Workload

NCCL_PAIR_BYTES = 544 * 2**20
NCCL_GROUP_BYTES = 688 * 2**20
"""Assumed memory of one NCCL communicator, outside the caching allocator: of two GPUs, of more.

Measured on A100 with NVLink (https://github.com/NVIDIA/nccl/issues/964, 2023-08-16). It grows with
the channels and their buffers (``NCCL_MAX_NCHANNELS``, ``NCCL_BUFFSIZE``), so machines differ.
"""

GPUS_PER_NODE = 8
"""Assumed: beyond so many GPUs the network between machines is the slowest link of the ring."""

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
}
# Peak rates in bytes per second and direction, assumed from general knowledge: NVLink 2, 3 and 4 of
# the SXM modules, PCIe 4.0 with 16 lanes for every other GPU, 400 Gbit/s of network for each GPU.


def nccl_bytes(workload: Workload) -> int:
    """Device memory of one GPU that NCCL is assumed to take."""
    if workload.parallelism is Parallelism.NONE:
        return 0
    return NCCL_PAIR_BYTES if workload.world_size == 2 else NCCL_GROUP_BYTES


def link_bytes_per_second(gpu: Gpu, world_size: int) -> float:
    """How fast a GPU is assumed to send to the next one in the ring."""
    peak = _NVLINK.get(gpu.name, _PCIE)
    return LINK_EFFICIENCY * (min(peak, _NETWORK) if world_size > GPUS_PER_NODE else peak)


def caveats(workload: Workload, gpu: Gpu) -> list[str]:
    """What a reader has to know of figures for several GPUs; nothing for one."""
    if workload.parallelism is Parallelism.NONE:
        return []
    rate = link_bytes_per_second(gpu, workload.world_size) / 1e9
    twice = (
        "Gradients are taken to be held twice, as DistributedDataParallel does by default: once "
        "for the optimizer, once in its buckets; gradient_as_bucket_view keeps the buckets alone."
    )
    once = "Gradients lie in DistributedDataParallel's buckets (gradient_as_bucket_view)."
    shared = {
        Parallelism.DDP: once if workload.gradient_as_bucket_view else twice,
        Parallelism.FSDP: "Sharding is full, by PyTorch's fully_shard (FSDP2) on each repeated "
        "block and on the rest of the model; gradients are reduced after every micro-batch.",
    }[workload.parallelism]
    return [
        f"Memory and batch sizes are those of one of the {workload.world_size:,} GPUs; samples per "
        f"second are of all. NCCL is assumed to take {nccl_bytes(workload) / 2**20:,.0f} MiB of "
        "each.",
        shared,
        f"GPUs are assumed to send each other {rate:,.0f} GB/s, hidden behind computing where that "
        "takes longer; a real step hides less.",
    ]
