"""A GPU that is known by its data sheet alone, checked for the usual slips of units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Annotated, Any

from ..core.border import settle
from ..core.errors import InvalidInput
from ..core.fields import Described, Group, Interval, described_fields
from ..core.parsing import unknown_fields
from ..core.sizes import GIB
from .catalogue import BUILT_IN
from .gpu import Gpu, Vendor
from .names import ANY, LOCAL, catalogue_name

ADDED_FAMILY = "Added by your lab"

MIB = 2**20

REPORTED_SHARE = 0.97
"""The share of the advertised memory that a driver reports, where nobody has looked: that of most
GPUs of the catalogue is 0.96 to 0.99, with ECC down to 0.92."""

_MIN_REPORTED = 0.85

AMD_CAPABILITY = 8.0
"""Compute capability that is assumed for an AMD GPU; see :class:`Gpu`."""

CAPABILITIES = (6.0, 6.1, 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 10.3, 12.0)

_CLOCK = {6.0: 1.8e9, 6.1: 2.0e9, 7.0: 1.8e9, 7.5: 2.1e9, 8.0: 1.8e9, 8.6: 2.1e9, 8.9: 3.0e9,
          9.0: 2.3e9, 10.0: 2.4e9, 10.3: 2.4e9, 12.0: 3.0e9}  # fmt: skip
_FP32_PER_CYCLE = {6.0: 128, 7.0: 128, 7.5: 128, 8.0: 128}
_HALF_PER_CYCLE = {6.0: 256, 6.1: 256, 7.0: 1024, 7.5: 1024, 8.0: 2048, 8.6: 1024, 8.9: 1024,
                   9.0: 4096, 10.0: 8192, 10.3: 8192, 12.0: 1024}  # fmt: skip
# By compute capability: about the highest clock in Hz, and the dense FLOPs that a multiprocessor
# does in a cycle, fp32 (else 256) and 16 bits. Assumed from NVIDIA's white papers, from general
# knowledge; the GPUs of the catalogue lie below, and most would not with their rates for sparsity.


@dataclass(frozen=True)
class DataSheet:
    """Values of a GPU from its data sheet, in its units.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    name: Annotated[
        str,
        Described(
            "Name",
            "As the driver reports it (nvidia-smi, torch.cuda.get_device_name()), so that your "
            "nodes with such a GPU are recognised: NVIDIA L20.",
            Group.GPU,
        ),
    ]
    memory_gb: Annotated[
        float,
        Interval(ge=1, le=2048),
        Described("Memory", "As advertised: 48 for a card with 48 GB.", Group.GPU, unit="GB"),
    ]
    bandwidth_gb_per_second: Annotated[
        float,
        Interval(ge=50, le=50_000),
        Described("Memory bandwidth", "3350 for 3.35 TB/s.", Group.GPU, unit="GB/s"),
    ]
    fp32_tflops: Annotated[
        float,
        Interval(ge=1, le=1000),
        Described("fp32", "Without tensor cores, dense.", Group.GPU, unit="TFLOP/s"),
    ]
    fp16_tflops: Annotated[
        float,
        Interval(ge=1, le=20_000),
        Described(
            "fp16",
            "Of tensor cores, dense, with fp32 accumulation. Data sheets often state the rate with "
            "sparsity, which is twice as high.",
            Group.GPU,
            unit="TFLOP/s",
        ),
    ]
    compute_capability: Annotated[
        float,
        Interval(ge=1, le=20),
        Described(
            "Compute capability",
            "Such as 8.9; see developer.nvidia.com/cuda-gpus. Ignored for AMD.",
            Group.GPU,
        ),
    ]
    multiprocessors: Annotated[
        int,
        Interval(ge=1, le=1000),
        Described("Multiprocessors", "SMs, or compute units of an AMD GPU.", Group.GPU),
    ]
    power_watts: Annotated[
        float,
        Interval(ge=10, le=3000),
        Described("Power limit", "Of the board.", Group.GPU, unit="W"),
    ]
    vendor: Annotated[Vendor, Described("Vendor", "Who made the chip.", Group.GPU)] = Vendor.NVIDIA
    tf32_tflops: Annotated[
        float | None,
        Interval(ge=1, le=10_000),
        Described(
            "tf32", "Dense. Leave blank without TF32.", Group.GPU, unit="TFLOP/s", empty="none"
        ),
    ] = None
    bf16_tflops: Annotated[
        float | None,
        Interval(ge=1, le=20_000),
        Described(
            "bf16", "Dense. Leave blank without bf16.", Group.GPU, unit="TFLOP/s", empty="none"
        ),
    ] = None
    reported_mib: Annotated[
        int | None,
        Interval(ge=500, le=2_100_000),
        Described(
            "Memory as reported",
            "PyTorch's total_memory of the device, divided by 2**20. If blank, 97% of the "
            "advertised memory is assumed.",
            Group.GPU,
            unit="MiB",
            empty="97% of the memory",
        ),
    ] = None
    price_per_hour_usd: Annotated[
        float | None,
        Interval(ge=0, le=10_000),
        Described(
            "Price per GPU-hour",
            "What your lab pays for one.",
            Group.COST,
            unit="USD",
            empty="none known",
        ),
    ] = None

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        settle(self, wrong)
        units = {name: field.described.unit for name, field in described_fields(DataSheet).items()}
        wrong = {name: f"{message} {units[name]}".strip() for name, message in wrong.items()}
        if wrong:
            raise InvalidInput(wrong)

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> DataSheet:
        """Read untrusted fields; empty text and ``None`` count as left out.

        Raises:
            InvalidInput: With a message for each wrong, missing or unknown field, and for those
                that cannot be true together.
        """
        filled: dict[str, Any] = {n: value for n, value in given.items() if value not in (None, "")}
        known = described_fields(cls)
        wrong = unknown_fields(filled, known)
        if filled.get("vendor") == Vendor.AMD:
            filled["compute_capability"] = AMD_CAPABILITY
        missing = [name for name in _NEEDED if name not in filled]
        wrong |= dict.fromkeys(missing, "it is missing; the data sheet has it")
        if wrong:
            raise InvalidInput(wrong)
        sheet = cls(**filled)
        if contradictions := sheet._contradictions():
            raise InvalidInput(contradictions)
        return sheet

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def slug(self) -> str:
        """The GPU's name on the command line and in the API, such as ``rtx-5060``."""
        words = re.sub(r"\b(nvidia|geforce|amd|instinct|tesla)\b", " ", self.name.lower())
        return re.sub(r"[^a-z0-9]+", "-", words).strip("-")

    @property
    def total_bytes(self) -> int:
        """Memory that the driver reports, or a share of what is advertised."""
        if self.reported_mib is not None:
            return self.reported_mib * MIB
        return round(REPORTED_SHARE * self.memory_gb * GIB)

    def _contradictions(self) -> dict[str, str]:
        """Errors for values that cannot be true together, such as a rate in another unit."""
        wrong = {}
        if not re.fullmatch(r"[a-z0-9-]{2,60}", self.slug) or self.slug in (LOCAL, ANY):
            wrong["name"] = "enter the GPU's name with letters and digits, 60 at most"
        known = self.slug if self.slug in BUILT_IN else catalogue_name(self.name)
        if known in BUILT_IN:
            wrong["name"] = f"the catalogue has it already, as {known}"
        if self.reported_mib is not None:
            share = self.reported_mib / (self.memory_gb * 1024)
            if not _MIN_REPORTED <= share <= 1:
                wrong["reported_mib"] = (
                    f"it is {share:.2f} times the memory of {self.memory_gb:g} GB, and has to be "
                    f"{_MIN_REPORTED} to 1; is one of them in another unit (GB, GiB, MiB)?"
                )
        if self.vendor is Vendor.NVIDIA:
            wrong |= self._rates_beyond_the_chip()
        if self.tf32_tflops is not None and self.tf32_tflops >= self.fp16_tflops:
            wrong.setdefault(
                "tf32_tflops",
                "it is at most half of fp16; is it the rate with sparsity? Enter the dense one",
            )
        if self.bf16_tflops is not None and self.bf16_tflops > 1.1 * self.fp16_tflops:
            wrong.setdefault(
                "bf16_tflops",
                "it is as high as fp16; is it the rate with sparsity? Enter the dense one",
            )
        return wrong

    def _rates_beyond_the_chip(self) -> dict[str, str]:
        """Errors for rates that the multiprocessors of this compute capability cannot reach."""
        if self.compute_capability not in CAPABILITIES:
            known = ", ".join(map(str, CAPABILITIES))
            return {"compute_capability": f"choose one of {known}"}
        clock, of = _CLOCK[self.compute_capability], self.compute_capability
        half = _HALF_PER_CYCLE[of]
        if "geforce" in self.name.lower() and of >= 7.5:
            half //= 2  # with fp32 accumulation
        wrong = {}
        chip = f"{self.multiprocessors} multiprocessors of compute capability {of} do at most"
        most_fp32 = self.multiprocessors * _FP32_PER_CYCLE.get(of, 256) * clock / 1e12
        if self.fp32_tflops > most_fp32:
            wrong["fp32_tflops"] = (
                f"{chip} {most_fp32:,.0f} TFLOP/s; is it the rate of tensor cores? Enter the plain "
                "fp32 one"
            )
        most = self.multiprocessors * half * clock / 1e12
        for name in ("fp16_tflops", "bf16_tflops"):
            if (getattr(self, name) or 0.0) > most:
                wrong[name] = (
                    f"{chip} {most:,.0f} TFLOP/s; is it the rate with sparsity, or with fp16 "
                    "accumulation? Enter the dense one with fp32 accumulation"
                )
        return wrong


_NEEDED = [field.name for field in fields(DataSheet) if field.default is MISSING]


def gpu_of(sheet: DataSheet, origin: str, name: str = "") -> Gpu:
    """The GPU of a data sheet; all its values are assumed.

    Args:
        sheet: The data sheet that was entered.
        origin: Who entered it, and when.
        name: Replaces the name that follows from what its vendor calls it.
    """
    context, context_source = _context(sheet)
    values: dict[str, Any] = {
        "total_bytes": sheet.total_bytes,
        "context_bytes": context,
        "compute_capability": sheet.compute_capability,
        "fp32_flops": sheet.fp32_tflops * 1e12,
        "fp16_flops": sheet.fp16_tflops * 1e12,
        "memory_bytes_per_second": sheet.bandwidth_gb_per_second * 1e9,
        "multiprocessors": sheet.multiprocessors,
        "power_watts": sheet.power_watts,
    }
    optional = {
        "tf32_flops": sheet.tf32_tflops and sheet.tf32_tflops * 1e12,
        "bf16_flops": sheet.bf16_tflops and sheet.bf16_tflops * 1e12,
        "price_per_hour_usd": sheet.price_per_hour_usd,
    }
    values |= {name: value for name, value in optional.items() if value is not None}
    sources = dict.fromkeys(values, f"assumed: {origin}") | {"context_bytes": context_source}
    if sheet.reported_mib is None:
        share = f"{100 * REPORTED_SHARE:g}% of {sheet.memory_gb:g} GB"
        sources["total_bytes"] = f"assumed: {share}, {origin}"
    return Gpu(
        name=name or sheet.slug,
        display_name=sheet.name,
        family=ADDED_FAMILY,
        vendor=sheet.vendor,
        sources=sources,
        **values,
    )


def _context(sheet: DataSheet) -> tuple[int, str]:
    """The context of the catalogue's GPU that is most alike, scaled by multiprocessors."""
    same_vendor = [gpu for gpu in BUILT_IN.values() if gpu.vendor is sheet.vendor]

    def apart(gpu: Gpu) -> tuple[float, int]:
        return (
            abs(gpu.compute_capability - sheet.compute_capability),
            abs(gpu.multiprocessors - sheet.multiprocessors),
        )

    like = min(same_vendor, key=apart)
    if sheet.vendor is Vendor.AMD:
        return like.context_bytes, f"assumed from {like.name}"
    scaled = round(like.context_bytes * sheet.multiprocessors / like.multiprocessors)
    least, most = like.context_bytes // 2, like.context_bytes * 2
    return min(max(scaled, least), most), f"assumed from {like.name}, scaled by multiprocessors"
