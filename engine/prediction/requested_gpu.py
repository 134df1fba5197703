"""The catalogue GPU of a request, its memory and its price."""

from __future__ import annotations

from dataclasses import replace

from ..core.errors import DoesNotFit, InvalidInput
from ..core.sizes import gib
from ..gpus import GPUS, HOW_TO_LIST, Gpu
from ..gpus.known import known_gpus
from ..interface.request import Request
from ..interface.trial import GpuFacts


def catalogue_gpu(request: Request) -> Gpu:
    """The catalogue GPU of a request, with less memory if the request sets a limit.

    Raises:
        InvalidInput: If it names none of the catalogue.
        DoesNotFit: If the memory limit leaves nothing beside the CUDA context.
    """
    if request.gpu not in GPUS:
        wanted = f"choose a catalogue GPU, not {request.gpu}; {HOW_TO_LIST}"
        raise InvalidInput({"gpu": wanted})
    gpu = known_gpus(request.launch_microseconds)[request.gpu]
    limit = request.memory_limit_bytes
    if limit is None or limit >= gpu.total_bytes:
        return gpu
    if limit <= gpu.context_bytes:
        raise DoesNotFit(
            f"The memory limit of {gib(limit)} leaves no room for tensors: the CUDA context alone "
            f"takes {gib(gpu.context_bytes)}. Set a larger limit."
        )
    name = f"{gpu.display_name} limited to {gib(limit)}"
    return replace(gpu, display_name=name, total_bytes=limit)


def gpu_facts(gpu: Gpu) -> GpuFacts:
    return GpuFacts(gpu.display_name, gpu.total_bytes, gpu.usable_bytes)


def price_per_hour(request: Request, gpu: Gpu) -> float:
    """The price of one GPU-hour in USD: the request's own, else the catalogue's; 0 if unknown."""
    own = request.assumptions.price_per_hour_usd
    return (gpu.price_per_hour_usd or 0.0) if own is None else own
