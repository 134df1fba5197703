"""Properties of a GPU as ``torch.cuda.get_device_properties`` returns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from ...gpus import Gpu

_KIB = 1024
_THREADS = {7.5: 1024, 8.6: 1536, 8.9: 1536, 12.0: 1536}
"""Resident threads of a multiprocessor where they are not 2048, by compute capability."""
_SHARED_KIB = {7.0: 96, 7.5: 64, 8.0: 164, 8.6: 100, 8.9: 100, 12.0: 100}
"""Shared memory of a multiprocessor where it is not 228 KiB."""


@dataclass(frozen=True)
class DeviceProperties:
    """The catalogue's facts, and what NVIDIA's programming guide says of a compute capability.

    Caches and clocks are assumed to be those of an A100: code asks only whether they are there. The
    number of multiprocessors is the GPU's own: kernels make a buffer for each.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int = 32
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 48 * _KIB
    shared_memory_per_block_optin: int = 227 * _KIB
    shared_memory_per_multiprocessor: int = 228 * _KIB
    L2_cache_size: int = 40 * 1024 * _KIB
    clock_rate: int = 1_410_000
    memory_clock_rate: int = 1_215_000
    memory_bus_width: int = 5120
    gcnArchName: str = ""  # noqa: N815 - its name in PyTorch
    uuid: UUID = field(default=UUID(int=0))
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0

    @classmethod
    def of(cls, gpu: Gpu) -> DeviceProperties:
        capability = gpu.compute_capability
        major, minor = divmod(round(capability * 10), 10)
        shared = _SHARED_KIB.get(capability, 228)
        of_a_block = shared if capability < 8 else shared - 1  # the rest is the system's
        return cls(
            gpu.display_name,
            major,
            minor,
            gpu.total_bytes,
            gpu.multiprocessors,
            max_threads_per_multi_processor=_THREADS.get(capability, 2048),
            shared_memory_per_block_optin=of_a_block * _KIB,
            shared_memory_per_multiprocessor=shared * _KIB,
            gcnArchName=gpu.display_name,
        )
