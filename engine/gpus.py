"""The GPU catalogue: kinds of GPU with the memory CUDA really reports, compute and price."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from .errors import InvalidInput
from .parsing import shown

GIB = 1024**3

LOCAL = "local"
"""Instead of a catalogue name: the device of the machine that runs the analysis."""

ANY = "any"
"""Instead of a catalogue name: the catalogue GPU that gives the most for its price."""

_CATALOGUE = Path(__file__).with_name("gpus.toml")
_DATE = re.compile(r"\b20\d\d-\d\d(?:-\d\d)?\b")


@dataclass(frozen=True)
class SelfChecked:
    """What the self-check of a machine measured that the catalogue has no field for.

    Attributes:
        where: The machine and the day, for people to read.
        cudnn_bytes: Of cuDNN with its kernels, beside the context.
        cublas_workspace_bytes: Of one thread's cuBLAS, within the caching allocator.
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
        total_bytes: What ``torch.cuda.get_device_properties().total_memory`` reports: less than
            the advertised size, since the driver and ECC use some.
        context_bytes: Used by a process besides PyTorch's own memory: CUDA context, kernels and
            libraries, with lazy loading (the default since CUDA 12.2).
        compute_capability: Such as ``8.6``; decides kernels and workspaces.
        fp32_flops, tf32_flops, bf16_flops, fp16_flops: Dense peak rates in FLOP/s with fp32
            accumulation; ``tf32_flops`` and ``bf16_flops`` are ``None`` without the
            hardware.
        memory_bytes_per_second: Peak memory bandwidth.
        multiprocessors: How many compute at the same time.
        power_watts: The board's power limit, which some GPUs reach before their peak rates.
        price_per_hour_usd: An on-demand cloud price for one GPU, assumed unless the lab sets its
            own.
        spot_price_per_hour_usd: The same of capacity that can be reclaimed at short notice;
            ``None`` where no dated price of exactly this GPU was found.
        sources: Source and date of each field, to check it; one that starts with ``assumed`` says
            what the value was derived from.
        checked: What a self-check measured beside ``total_bytes`` and ``context_bytes``, which
            then are measured too; ``None`` for catalogue values.
        launch_seconds: What the GPU's host takes to launch an operation of a training step on
            average, by a self-check or as given; ``None`` where it is not known.
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
    price_per_hour_usd: float
    sources: dict[str, str]
    tf32_flops: float | None = None
    bf16_flops: float | None = None
    spot_price_per_hour_usd: float | None = None
    checked: SelfChecked | None = None
    launch_seconds: float | None = None

    @property
    def usable_bytes(self) -> int:
        """What is left for PyTorch's caching allocator."""
        return self.total_bytes - self.context_bytes

    @property
    def price_date(self) -> str:
        """When the on-demand price held: ``2026-05-07`` or ``2026-11``; empty if unknown."""
        return self._date_of("price_per_hour_usd")

    @property
    def spot_price_date(self) -> str:
        return self._date_of("spot_price_per_hour_usd")

    def _date_of(self, field: str) -> str:
        dates = _DATE.findall(self.sources.get(field, ""))
        return dates[-1] if dates else ""


def read_catalogue(text: str) -> dict[str, Gpu]:
    """Read ``gpus.toml``: one table per GPU, with the fields of :class:`Gpu`.

    Raises:
        ValueError: If a table lacks a field, has an unknown one, or its sources do not match its
            fields.
    """
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    for name, table in tables.items():
        _check_keys(name, table)
    return {name: Gpu(name=name, **table) for name, table in tables.items()}


def _check_keys(name: str, table: Mapping[str, Any]) -> None:
    known = {field.name for field in fields(Gpu)} - {"name", "checked", "launch_seconds"}
    needed = {field.name for field in fields(Gpu) if field.default is MISSING} - {"name"}
    if unknown := table.keys() - known:
        raise ValueError(f"GPU {name}: unknown {', '.join(sorted(unknown))}")
    if missing := needed - table.keys():
        raise ValueError(f"GPU {name}: lacks {', '.join(sorted(missing))}")
    to_source = table.keys() - {"display_name", "sources"}
    if odd := to_source ^ table["sources"].keys():
        raise ValueError(f"GPU {name}: sources and fields differ in {', '.join(sorted(odd))}")


_DRIVER_NAMES = {"NVIDIA H100 80GB HBM3": "h100"}
"""Driver names that differ from the data sheet."""

GPUS: dict[str, Gpu] = read_catalogue(_CATALOGUE.read_text(encoding="utf-8"))


def canonical_name(text: object) -> str:
    """The catalogue name (or ``local``, or ``any``) for user input.

    Case, blanks, underscores and hyphens do not matter (``A100-80GB``, ``RTX 4090``, ``rtx4090``),
    nor do vendor prefixes (``NVIDIA GeForce``, ``Tesla``) or a missing ``rtx-``.

    Raises:
        InvalidInput: If no GPU or several match; the message lists them.
    """
    names = [*GPUS, LOCAL, ANY]
    wanted = _bare(str(text))
    for name in names:
        if wanted == _bare(name):
            return name
    similar = [name for name in GPUS if wanted and _bare(name).startswith(wanted)]
    if similar:
        message = f"{shown(text)} is not exact enough; choose one of {', '.join(similar)}"
    else:
        message = f"unknown gpu {shown(text)}; choose one of {', '.join(names)}"
    raise InvalidInput({"gpu": message})


def catalogue_name(device_name: str) -> str | None:
    """The catalogue name for a driver's device name; ``None`` if it is not in the catalogue."""
    reported = _bare(_DRIVER_NAMES.get(device_name, device_name))
    for name, gpu in GPUS.items():
        if reported in (_bare(name), _bare(gpu.display_name)):
            return name
    return None


def _bare(text: str) -> str:
    bare = "".join(character for character in text.lower() if character.isalnum())
    for word in ("nvidia", "geforce", "tesla", "rtx"):
        bare = bare.removeprefix(word)
    return bare
