"""The kernels of many steps in columns, and their times by the engine's own formulas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from benchmarks.step_time.rows import Row, gpus
from benchmarks.step_time.work import operations_of
from engine.prediction.timing.kernels import Kernel, kernel_of
from engine.prediction.timing.launch_queue import PHASES, places
from engine.prediction.timing.launches import Launch, launch_of
from engine.prediction.timing.speed_model import Rates, SpeedModel

Hosts = Mapping[str, Any]
"""Launch times of the hosts of measurements, in seconds, by source; any other takes what the
engine assumes."""

_PHASES = max(PHASES.values()) + 1


class Table:
    """The kernels of many rows in columns, each kind of kernel of a row once where none computes.

    Args:
        rows: Rows with their work traced.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.gpus = sorted({row.gpu for row in rows})
        of_rows = [_kernels(row) for row in rows]
        owners = [index for index, kernels in enumerate(of_rows) for _ in kernels]
        found = [one for kernels in of_rows for one in kernels]
        self._row = torch.tensor(owners)
        # Each phase of a row takes as many cells as the most parts that any has.
        self._parts = 1 + max((one.place for one in found), default=0)
        cells = [one.phase * self._parts + one.place for one in found]
        self._cell = self._row * _PHASES * self._parts + torch.tensor(cells)
        self._waits = self._sum(torch.ones(len(found), dtype=torch.float64)) > 0
        self._waits[..., 0] = False
        self._launch = torch.tensor([one.launch for one in found])
        self._times = column([one.times for one in found])
        self._launches = column([one.launches for one in found])
        given = [one.kernel for one in found]
        columns = (
            "flops",
            "bytes_moved",
            "inner",
            "columns",
            "tiles",
            "relaid",
            "per_image",
            "unaligned",
            "blocks",
            "across",
        )
        self._kernels = Kernel(
            kind=cast(Any, torch.tensor([kernel.kind for kernel in given])),
            format=cast(Any, torch.tensor([kernel.format for kernel in given])),
            **{
                name: cast(Any, column([getattr(kernel, name) for kernel in given]))
                for name in columns
            },
        )
        self._gpu = torch.tensor([self.gpus.index(row.gpu) for row in rows])
        self._copied = column([_copied_bytes(row) for row in rows])
        self._sources = [row.source for row in rows]
        self._only_kernels = torch.tensor([bool(row.kind) for row in rows])

    def seconds(self, model: SpeedModel, hosts: Hosts) -> torch.Tensor:
        """The predicted time of every row's step."""
        rates = [model.rates(gpus()[name]) for name in self.gpus]
        gpu = self._gpu[self._row]
        flops = torch.stack(
            [torch.stack(list(map(_tensor, one.flops_per_second))) for one in rates]
        )
        here = Rates(
            flops_per_second=cast(Any, flops[gpu, cast(Any, self._kernels.format)]),
            bytes_per_second=cast(
                Any, torch.stack([_tensor(one.bytes_per_second) for one in rates])[gpu]
            ),
            multiprocessors=cast(Any, column([one.multiprocessors for one in rates])[gpu]),
            speed=1.0,
            **{
                name: cast(Any, torch.stack([_tensor(getattr(one, name)) for one in rates])[gpu])
                for name in ("earlier", "across", "unaligned_images", "relaid_products")
            },
        )
        computing = model.computing_seconds(self._kernels, cast(Any, here.flops_per_second), here)
        moving = model.moving_seconds(self._kernels, here)
        overlap = _tensor(model.overlap)[cast(Any, self._kernels.kind)]
        both = torch.maximum(*_two(moving, computing)) + overlap * torch.minimum(
            *_two(moving, computing)
        )
        on_gpu = self._sum(self._launches * model.kernel_seconds + self._times * both)
        weights = _tensor(model.launches)
        on_host = self._sum(self._launches * weights[self._launch])
        on_host[:, -1, 0] += model.step_launches
        launching = [_tensor(hosts.get(one, model.host_seconds)) for one in self._sources]
        on_host = on_host * torch.stack(launching)[:, None, None]
        queued = self._copied / model.copy_bytes_per_second + self._queue(on_host, on_gpu)
        return torch.where(self._only_kernels, on_gpu.sum((1, 2)), queued)

    def _sum(self, column: torch.Tensor) -> torch.Tensor:
        """Sums by row, phase and part."""
        cells = torch.zeros(len(self.rows) * _PHASES * self._parts, dtype=torch.float64)
        return cells.index_add(0, self._cell, column).reshape(-1, _PHASES, self._parts)

    def _queue(self, on_host: torch.Tensor, on_gpu: torch.Tensor) -> torch.Tensor:
        """:func:`engine.prediction.timing.launch_queue.queue_seconds` of rows."""
        host = gpu = torch.zeros(len(on_host), dtype=torch.float64)
        columns = (one.flatten(1).unbind(1) for one in (on_host, on_gpu, self._waits))
        for launching, computing, waits in zip(*columns, strict=True):
            host = torch.where(waits, torch.maximum(host, gpu), host)
            gpu = torch.maximum(torch.maximum(gpu, host) + computing, host + launching)
            host = host + launching
        return gpu


def _two(one: Any, other: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return one, other


def _copied_bytes(row: Row) -> float:
    """Bytes a step copies to the GPU: our own do; published ones have their data there."""
    moved = [times * one.bytes_moved for one, times in operations_of(row) if one.phase == "inputs"]
    return sum(moved) / 2


@dataclass(frozen=True)
class _Kernels:
    """A kernel of a row, or all that only move bytes of a kind.

    Attributes:
        phase, place: Phase of the step, and part of it, as indices.
        times: Number of times it runs.
        launches: Number of kernels it stands for.
    """

    kernel: Kernel
    launch: Launch
    phase: int
    place: int
    times: float
    launches: float


def _kernels(row: Row) -> list[_Kernels]:
    computing: Counter[tuple[Kernel, Launch, int, int]] = Counter()
    moved: Counter[tuple[int, int, float, float, Launch, int, int]] = Counter()
    launches: Counter[tuple[int, int, float, float, Launch, int, int]] = Counter()
    tf32 = gpus()[row.gpu].tf32_flops is not None
    work = operations_of(row)
    parts = places([operation for operation, _ in work], 1)
    for (operation, times), place in zip(work, parts, strict=True):
        kernel = kernel_of(operation, tf32=tf32, tf32_products=row.precision == "tf32")
        if kernel is None or operation.phase not in PHASES:
            continue
        here = launch_of(operation), PHASES[operation.phase], place
        if kernel.flops:
            computing[kernel, *here] += times
        else:
            alike = kernel.kind, kernel.format, kernel.inner, kernel.blocks, *here
            moved[alike] += times * int(kernel.bytes_moved)
            launches[alike] += times
    found = [_Kernels(*key, float(times), float(times)) for key, times in computing.items()]
    for key, total in moved.items():
        kind, unit, inner, blocks, launch, phase, place = key
        all_of_it = Kernel(kind, unit, 0.0, total, inner, blocks=blocks)
        found.append(_Kernels(all_of_it, launch, phase, place, 1.0, float(launches[key])))
    return found


def column(values: Sequence[float]) -> torch.Tensor:
    """Numbers as a tensor of double precision."""
    return torch.tensor(values, dtype=torch.float64)


def _tensor(value: Any) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


_TABLES = (
    "overlap",
    "launches",
    "bandwidth",
    "asking",
    "compute",
    "half_inner",
    "half_columns",
    "half_tiles",
    "half_row",
    "relaid",
    "unaligned",
)


def as_table(model: SpeedModel) -> SpeedModel:
    """A model of numbers whose tables can be looked up by tensors."""
    columns = {name: column(list(getattr(model, name))) for name in _TABLES}
    return SpeedModel(**{**vars(model), **cast(Any, columns)})
