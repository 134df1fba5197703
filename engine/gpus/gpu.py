"""Facts about a kind of GPU: its memory as the driver reports it, rates, power and price."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_DATE = re.compile(r"\b20\d\d-\d\d(?:-\d\d)?\b")


class Vendor(StrEnum):
    """Maker of a GPU, which decides the kernels and libraries that run on it."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"


@dataclass(frozen=True)
class SelfChecked:
    """Measurements of a machine's self-check that the catalogue has no field for.

    Attributes:
        where: The machine and the day, for people to read.
        cudnn_bytes: Memory of cuDNN with its kernels, beside the context.
        cublas_workspace_bytes: Workspace of one thread's cuBLAS, within the caching allocator.
    """

    where: str
    cudnn_bytes: int | None = None
    cublas_workspace_bytes: int | None = None


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, or the one of a machine whose self-check measured it.

    Attributes:
        name: Short name used on the command line and in the API (``a10``).
        display_name: As the vendor writes it.
        total_bytes: Memory that ``torch.cuda.get_device_properties().total_memory`` reports on
            Linux: less than the advertised size, since the driver and ECC use some.
        context_bytes: Used by a process besides PyTorch's own memory: CUDA context, kernels and
            libraries, with lazy loading (the default since CUDA 12.2).
        compute_capability: Such as ``8.6``; decides kernels and workspaces. For an AMD GPU, the one
            whose choice of attention kernels comes closest; ROCm has none.
        fp32_flops, tf32_flops, bf16_flops, fp16_flops: Dense peak rates in FLOP/s with fp32
            accumulation; ``tf32_flops`` and ``bf16_flops`` are ``None`` without the hardware.
        memory_bytes_per_second: Peak memory bandwidth.
        multiprocessors: Number of those that compute at the same time.
        power_watts: The board's power limit, which some GPUs reach before their peak rates.
        price_per_hour_usd: An on-demand cloud price for one GPU, assumed unless the lab sets its
            own; ``None`` where no dated price was found.
        spot_price_per_hour_usd: The same of capacity that can be reclaimed at short notice;
            ``None`` where no dated price of exactly this GPU was found.
        sources: Source and date of each field, to check it; one that starts with ``assumed`` says
            what the value was derived from.
        family: The group that lists show it in, such as ``GeForce``.
        vendor: Its maker.
        driver_names: Names that drivers have for it, besides :attr:`display_name`. GPUs that differ
            in memory alone may share one.
        workspace_bytes: Workspace of one thread's matrix products, within the caching allocator,
            where it does not follow from the compute capability.
        checked: Measurements of a self-check beside ``total_bytes`` and ``context_bytes``, which
            then are measured too; ``None`` for catalogue values.
        launch_seconds: The launch time of the GPU's host, by a self-check or as given; ``None``
            where it is not known.
        launch_range: Its lowest and highest value by a self-check; ``None`` where it is known
            exactly, or not at all.
    """

    name: str
    display_name: str
    total_bytes: int
    context_bytes: int
    compute_capability: float
    fp32_flops: float
    fp16_flops: float
    memory_bytes_per_second: float
    multiprocessors: int
    power_watts: float
    sources: dict[str, str]
    family: str = ""
    vendor: Vendor = Vendor.NVIDIA
    driver_names: tuple[str, ...] = ()
    tf32_flops: float | None = None
    bf16_flops: float | None = None
    workspace_bytes: int | None = None
    price_per_hour_usd: float | None = None
    spot_price_per_hour_usd: float | None = None
    checked: SelfChecked | None = None
    launch_seconds: float | None = None
    launch_range: tuple[float, float] | None = None

    @property
    def usable_bytes(self) -> int:
        """Memory left for PyTorch's caching allocator."""
        return self.total_bytes - self.context_bytes

    @property
    def rates_known(self) -> bool:
        """Whether kernels of its vendor were measured, so that step times are more than a guess."""
        return self.vendor is Vendor.NVIDIA

    @property
    def price_date(self) -> str:
        """Date of the on-demand price: ``2026-05-07`` or ``2026-11``; empty if unknown."""
        return self._date_of("price_per_hour_usd")

    @property
    def spot_price_date(self) -> str:
        return self._date_of("spot_price_per_hour_usd")

    def _date_of(self, field: str) -> str:
        dates = _DATE.findall(self.sources.get(field, ""))
        return dates[-1] if dates else ""
