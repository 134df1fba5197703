"""The constants of step times: what share of its peak rates a GPU reaches in each kind of kernel.

They are in ``step_time.toml`` next to this file; ``python -m benchmarks.step_time fit`` writes it
from published training runs. The formulas take numbers here and tensors there.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from ...gpus import Gpu
from .kernels import FORMATS, SPLIT_SUMS, Format, Kernel, Kind
from .launches import Launch

FILE = Path(__file__).with_name("step_time.toml")

STEP_PREDICTOR = "step_predictor"
"""The entry of an analysis's environment that holds :func:`step_predictor`."""
_STEP_TIMES = ("step_time.py", "kernels.py", "speed_model.py", "step_time.toml")

_SHARPNESS = 3
"""Sharpness with which a power limit sets in: at half of it 4% are lost, where they meet 21%."""

_BLOCKS_AT_ONCE = 2
"""Blocks of threads that a multiprocessor runs at once, where these are few and large: 1,024 of the
2,048 threads that it has on GPUs of data centres."""

GENERATIONS = {
    6.1: "pascal",
    7.0: "volta",
    7.5: "turing",
    8.0: "ampere-data-center",
    8.6: "ampere",
    8.9: "ada",
    9.0: "hopper",
    12.0: "blackwell",
}
"""Generations of GPUs, by compute capability."""


@dataclass(frozen=True)
class Generation:
    """Constants that one generation of GPUs has in common.

    Attributes:
        joules_per_flop: Energy of whole matrix products, by
            :class:`~.kernels.Format`: it and the GPU's power limit its rate.
        flops: Factor on the rate of products and convolutions, by format.
        bandwidth: Factor on the bandwidth.
        earlier: Share of its rate that kernels of earlier generations reach on its tensor cores:
            they multiply matrices whose rows are not aligned.
        across: Share of its rate that it reaches in TF32 products of two matrices that lie across
            the sums: Hopper's instructions read TF32 along them only.
        unaligned_images: Factor on the share that convolutions reach whose channels are not
            aligned, such as three colours.
        relaid_products: Factor on the bytes that are laid out anew of convolutions that are a
            product of matrices for each image.
    """

    joules_per_flop: Sequence[float]
    flops: Sequence[float]
    bandwidth: float
    earlier: float
    across: float
    unaligned_images: float
    relaid_products: float


@dataclass(frozen=True)
class SpeedModel:
    """All constants of a step's time on the GPU and its host.

    Attributes:
        kernel_seconds: Time for a kernel to start and drain.
        overlap: The share that the shorter of moving and computing adds to the longer, by kind.
        host_seconds: Time for Python and PyTorch to launch one operation.
        copy_bytes_per_second: Copy rate from the host's pageable memory to the GPU.
        launches: Cost of a launch in mean launches, by
            :class:`~engine.prediction.timing.launches.Launch`.
        step_launches: Mean launches that a step takes besides.
        bandwidth: Share of the peak bandwidth, by :class:`~engine.prediction.timing.kernels.Kind`.
        asking: Bytes per second that each multiprocessor moves where memory is no limit, by kind;
            of kernels with few blocks of threads, each of these.
        compute: Share of the sustained FLOP rate of large products, by kind and format
            (``kind * FORMATS + format``).
        half_inner, half_columns, half_tiles: Sizes at which half of that is reached, by kind: the
            length of the sums; the columns; the tiles for each multiprocessor.
        half_row: Length of rows with which what a layer norm asks for takes twice as long, by kind:
            a block of threads takes a while for each row, whatever its length.
        relaid: Multiple of its bytes that a convolution moves in addition where its images have to
            be laid out anew, by kind and format.
        unaligned: Share of its rate that is reached where rows or channels are not aligned, by kind
            and format.
        generations: Generations of GPUs, by name.
        gpus: Factor on the speed of a GPU with measurements, by name.
        ranges: Low and high of measured over predicted steps, by family, whether there are
            measurements of the GPU, and whether the GPU waits for its host.
    """

    kernel_seconds: float
    overlap: Sequence[float]
    host_seconds: float
    copy_bytes_per_second: float
    launches: Sequence[float]
    step_launches: float
    bandwidth: Sequence[float]
    asking: Sequence[float]
    compute: Sequence[float]
    half_inner: Sequence[float]
    half_columns: Sequence[float]
    half_tiles: Sequence[float]
    half_row: Sequence[float]
    relaid: Sequence[float]
    unaligned: Sequence[float]
    generations: Mapping[str, Generation]
    gpus: Mapping[str, float]
    ranges: Mapping[tuple[str, bool, bool], tuple[float, float]] = field(default_factory=dict)

    def moving_seconds(self, kernel: Kernel, rates: Rates) -> float:
        """The time that a kernel takes to move its bytes, at a GPU's rates.

        Neither memory nor its multiprocessors' requests alone limit a kernel: the time is the sum
        of what either would take alone.
        """
        again = kernel.relaid * self.relaid[kernel.kind * FORMATS + kernel.format]
        again = again * (1 - kernel.per_image * (1 - rates.relaid_products))
        moved = kernel.bytes_moved * (1 + again)
        at_once = _BLOCKS_AT_ONCE * rates.multiprocessors
        few = kernel.blocks * at_once / (kernel.blocks + at_once)
        blocks = few + (kernel.blocks == 0) * rates.multiprocessors
        asked = self.asking[kernel.kind] * blocks / (1 + self.half_row[kernel.kind] / kernel.inner)
        sustained = rates.bytes_per_second * self.bandwidth[kernel.kind]
        return moved * (1 / sustained + 1 / asked)

    def computing_seconds(self, kernel: Kernel, flops_per_second: float, rates: Rates) -> float:
        """The time that a kernel takes to compute, at the rate of its format.

        Short sums, few columns and few tiles leave units idle.
        """
        kind = kernel.kind
        is_product = 1.0 * (kind <= Kind.BATCHED_PRODUCT)
        tiles = kernel.tiles * (1 + is_product * kernel.inner / SPLIT_SUMS)
        filled = (
            kernel.inner
            / (kernel.inner + self.half_inner[kind])
            * kernel.columns
            / (kernel.columns + self.half_columns[kind])
            * tiles
            / (tiles + self.half_tiles[kind] * rates.multiprocessors)
        )
        share = self.compute[kind * FORMATS + kernel.format]
        of_generation = is_product * rates.earlier + (1 - is_product) * rates.unaligned_images
        unaligned = self.unaligned[kind * FORMATS + kernel.format] * of_generation
        share = share * (1 - kernel.unaligned * (1 - unaligned))
        share = share * (1 - kernel.across * (1 - rates.across))
        return kernel.flops / (flops_per_second * share * filled)

    def rates(self, gpu: Gpu) -> Rates:
        """Rates that a GPU sustains, in its generation and within its power."""
        generation = self.generations[generation_of(gpu.compute_capability)]
        speed = self.gpus.get(gpu.name, 1.0)
        peaks = {Format.FP32: gpu.fp32_flops, Format.HALF: gpu.fp16_flops}
        if gpu.tf32_flops is not None:
            peaks[Format.TF32] = gpu.tf32_flops
        sustained = {
            unit: speed
            * generation.flops[unit]
            * _within_power(peak, gpu.power_watts / generation.joules_per_flop[unit])
            for unit, peak in peaks.items()
        }
        return Rates(
            # Without units for TF32, those of fp32 compute.
            flops_per_second=[sustained.get(unit, sustained[Format.FP32]) for unit in Format],
            bytes_per_second=speed * generation.bandwidth * gpu.memory_bytes_per_second,
            multiprocessors=gpu.multiprocessors,
            speed=speed,
            earlier=generation.earlier,
            across=generation.across,
            unaligned_images=generation.unaligned_images,
            relaid_products=generation.relaid_products,
        )


@dataclass(frozen=True)
class Rates:
    """Rates that one GPU sustains.

    Attributes:
        flops_per_second: FLOP rate in large products, by format.
        bytes_per_second: Bandwidth of its memory.
        multiprocessors: Number of multiprocessors.
        speed: The factor of this GPU, part of both rates.
        earlier, across, unaligned_images, relaid_products: As in its :class:`Generation`.
    """

    flops_per_second: Sequence[float]
    bytes_per_second: float
    multiprocessors: float
    speed: float
    earlier: float
    across: float
    unaligned_images: float
    relaid_products: float


def _within_power(peak: float, limit: float) -> float:
    limited: float = peak / (1 + (peak / limit) ** _SHARPNESS) ** (1 / _SHARPNESS)
    return limited


def generation_of(compute_capability: float) -> str:
    """The generation of a GPU; of one that is not known, the latest before it."""
    known = [one for one in GENERATIONS if one <= compute_capability] or [min(GENERATIONS)]
    return GENERATIONS[max(known)]


@cache
def speed_model() -> SpeedModel:
    """The constants in use."""
    return read_model(FILE)


def read_model(path: Path) -> SpeedModel:
    """Read the constants from a file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If something is missing in it.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        kinds = [table["kind"][kind.name.lower()] for kind in Kind]
        return SpeedModel(
            **table["launch"],
            launches=[table["launches"][_key(launch)] for launch in Launch],
            overlap=[kind["overlap"] for kind in kinds],
            bandwidth=[kind["bandwidth"] for kind in kinds],
            asking=[kind["asking"] for kind in kinds],
            compute=[kind.get(_key(unit), 1.0) for kind in kinds for unit in Format],
            half_inner=[kind.get("half_inner", 0.0) for kind in kinds],
            half_columns=[kind.get("half_columns", 0.0) for kind in kinds],
            half_tiles=[kind.get("half_tiles", 0.0) for kind in kinds],
            half_row=[kind.get("half_row", 0.0) for kind in kinds],
            relaid=[kind.get(f"relaid_{_key(unit)}", 0.0) for kind in kinds for unit in Format],
            unaligned=[
                kind.get(f"unaligned_{_key(unit)}", 1.0) for kind in kinds for unit in Format
            ],
            generations={name: _generation(fields) for name, fields in table["generation"].items()},
            gpus={name: fields["speed"] for name, fields in table["gpu"].items()},
            ranges={
                (family, known, waits): (found["low"], found["high"])
                for family, fields in table.get("range", {}).items()
                for key, known in (("with_rows", True), ("without_rows", False))
                for bound, waits in (("by_gpu", False), ("by_host", True))
                for found in [fields[key][bound]]
            },
        )
    except KeyError as error:
        raise ValueError(f"{path} lacks {error}") from error


def _generation(fields: dict[str, Any]) -> Generation:
    return Generation(
        joules_per_flop=[fields["joules_per_flop"][_key(unit)] for unit in Format],
        flops=[fields["flops"][_key(unit)] for unit in Format],
        bandwidth=fields["bandwidth"],
        earlier=fields["earlier"],
        across=fields["across"],
        unaligned_images=fields["unaligned_images"],
        relaid_products=fields["relaid_products"],
    )


def _key(unit: IntEnum) -> str:
    return unit.name.lower()


@cache
def step_predictor() -> str:
    """Changes with how step times are predicted from the operations of a step."""
    contents = b"".join(FILE.with_name(name).read_bytes() for name in _STEP_TIMES)
    return hashlib.sha256(contents).hexdigest()
