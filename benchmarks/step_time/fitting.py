"""Fits the constants of step times to published rows, with the engine's own formulas.

The fit minimises the robust squared logarithm of predicted over measured, plus, for each constant,
the squared distance from its starting value: constants that the rows do not determine stay there,
and factors of generations and GPUs shrink towards 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from benchmarks.step_time.rows import Row, gpus
from benchmarks.step_time.work import operations_of
from engine.prediction.kernels import COMPUTING, DEPTHWISE, Format, Kernel, Kind, kernel_of
from engine.prediction.speed_model import GENERATIONS, Generation, SpeedModel

_NOISE = 0.08
"""The residual, as a natural logarithm, from which on rows count less than by their square."""
_LEAST_LOSS_CHANGE = 1e-7
_MOST_ITERATIONS = 300

_PRODUCT_KINDS = (Kind.PRODUCT, Kind.BATCHED_PRODUCT)
_CONVOLUTION_KINDS = tuple(
    kind for kind in COMPUTING if "CONVOLUTION" in kind.name and kind not in DEPTHWISE
)

JOULES = {
    "pascal": (20e-12, 20e-12),
    "volta": (16e-12, 2.6e-12),
    "turing": (17.8e-12, 2.6e-12),
    "ampere-data-center": (15.8e-12, 1.1e-12),
    "ampere": (12e-12, 1.75e-12),
    "ada": (8.2e-12, 1e-12),
    "hopper": (12e-12, 0.66e-12),
    "blackwell": (8e-12, 0.66e-12),
}
"""Joules per FLOP of fp32 and of half precision.

Of fp32 from kernels that the NeuSight paper measured on an L4, a T4 and an A100: products above
5·10¹⁰ FLOPs reached 29%, 49% and 81% of the peak in the median, at 72, 70 and 250 W
(https://github.com/sitar-lab/NeuSight, read 2026-11-22). The other fp32 values are assumed from
these and the process.

Of half precision from the fastest products that others measured: V100 95, A100 268, A5000 94, A6000
131, L40S 252, RTX 6000 Ada 279, H100 792, its PCIe card 500 TFLOP/s
(https://github.com/mag-/gpu_benchmark, read 2026-11-22). Turing's is assumed to be Volta's, made in
the same process, and Blackwell's to be Hopper's.
"""


@dataclass(frozen=True)
class Constant:
    """One constant to fit.

    Attributes:
        start: Where it begins, and stays if nothing moves it.
        spread: How far it may be from there, as the standard deviation of its logarithm.
    """

    start: float
    spread: float


def constants(gpu_names: Iterable[str]) -> dict[str, Constant]:
    """All constants by name.

    Args:
        gpu_names: Of the GPUs with rows.
    """
    found = {
        "kernel_seconds": Constant(3e-6, 0.3),
        "overlap": Constant(0.15, 0.7),
        # Sweeps of Hugging Face's Trainer: 17 to 24 µs (huggingface/transformers#14608).
        "host_seconds": Constant(20e-6, 0.05),
        "relaid.tensor": Constant(1.0, 0.7),
        "relaid.depthwise": Constant(0.5, 0.7),
        "product.half_inner": Constant(64, 0.7),
        "product.half_tiles": Constant(0.3, 0.5),
        "convolution.half_inner": Constant(64, 0.7),
        "convolution.half_columns": Constant(16, 0.7),
        "convolution.half_tiles": Constant(0.3, 0.5),
        "depthwise.half_columns": Constant(16, 0.7),
        "product.fp32": Constant(1.1, 0.3),
        # The same units, so the same share; A100: 116 of 156 TFLOP/s in TF32, 230 of 312 in half
        # precision (https://github.com/mli/transformers-benchmarks, read 2026-11-22).
        "product.tf32": Constant(1.0, 0.05),
        # Winograd: NeuSight's 3×3 kernels above 5·10¹⁰ FLOPs ran 1.4 (V100) to 2.6 times (T4) as
        # fast as its products. Smaller filters do not use it.
        "convolution.fp32": Constant(1.5, 0.2),
        "convolution.tf32": Constant(1.0, 0.3),
    }
    for kind in Kind:
        found[f"{kind.name}.bandwidth"] = Constant(0.75, 0.5)
    for kind in (kind for kind in COMPUTING if kind is not Kind.PRODUCT):
        start = 0.3 if kind in DEPTHWISE else 0.6
        found[f"{kind.name}.compute"] = Constant(start, 0.5)
    for name in GENERATIONS.values():
        single, half = JOULES[name]
        found[f"{name}.joules.fp32"] = Constant(single, 0.05)
        found[f"{name}.joules.half"] = Constant(half, 0.1)
        found[f"{name}.tensor"] = Constant(1.0, 0.05)
        for rate in ("fp32", "bandwidth"):
            found[f"{name}.{rate}"] = Constant(1.0, 0.15)
    return found | {f"gpu.{name}": Constant(1.0, 0.1) for name in gpu_names}


FIVE = {
    "compute": Constant(0.6, 1.0),
    "bandwidth": Constant(0.75, 1.0),
    "kernel_seconds": Constant(5e-6, 0.5),
    "host_seconds": Constant(25e-6, 0.2),
}
"""What the engine had before, without the copy's rate: one share of each peak for all kernels."""


def five_constants(
    values: Callable[[str], Any], gpu_names: Iterable[str], stack: Any
) -> SpeedModel:
    """As :func:`model_of`, with the same shares for every kind of kernel and every GPU."""
    none = 0.0 * values("compute")
    one = Generation([1e-30] * len(Format), [1.0] * len(Format), 1.0)
    return SpeedModel(
        kernel_seconds=values("kernel_seconds"),
        overlap=none,
        host_seconds=values("host_seconds"),
        copy_bytes_per_second=10e9,
        bandwidth=stack([values("bandwidth")] * len(Kind)),
        compute=stack([values("compute")] * len(Kind) * len(Format)),
        half_inner=stack([none] * len(Kind)),
        half_columns=stack([none] * len(Kind)),
        half_tiles=stack([none] * len(Kind)),
        relaid=stack([none] * len(Kind) * len(Format)),
        generations=dict.fromkeys(GENERATIONS.values(), one),
        gpus={},
    )


def model_of(values: Callable[[str], Any], gpu_names: Iterable[str], stack: Any) -> SpeedModel:
    """The engine's model from named values, numbers or tensors alike.

    Args:
        values: Returns a constant by its name.
        gpu_names: Of the GPUs with rows.
        stack: Makes a table of a list of values.
    """
    return SpeedModel(
        kernel_seconds=values("kernel_seconds"),
        overlap=values("overlap"),
        host_seconds=values("host_seconds"),
        copy_bytes_per_second=10e9,
        bandwidth=stack([values(f"{kind.name}.bandwidth") for kind in Kind]),
        compute=stack([_compute(values, kind, unit) for kind in Kind for unit in Format]),
        half_inner=stack([_shape(values, kind, "half_inner") for kind in Kind]),
        half_columns=stack([_shape(values, kind, "half_columns") for kind in Kind]),
        half_tiles=stack([_shape(values, kind, "half_tiles") for kind in Kind]),
        relaid=stack([_relaid(values, kind, unit) for kind in Kind for unit in Format]),
        generations={
            name: Generation(
                joules_per_flop=[
                    values(f"{name}.joules.fp32"),
                    2 * values(f"{name}.joules.half"),  # half as many FLOPs for each number read
                    values(f"{name}.joules.half"),
                ],
                # Tensor cores compute TF32 and half precision, twice as much of it.
                flops=[values(f"{name}.fp32")] + [values(f"{name}.tensor")] * 2,
                bandwidth=values(f"{name}.bandwidth"),
            )
            for name in GENERATIONS.values()
        },
        gpus={name: values(f"gpu.{name}") for name in gpu_names},
    )


def _compute(values: Callable[[str], Any], kind: Kind, unit: Format) -> Any:
    """The share of kind and format: that of half precision, times what the format changes.

    The sustained rate is that of products, so theirs is 1.
    """
    one = 1.0 + 0.0 * values("overlap")
    if kind not in COMPUTING:
        return one
    share = one if kind is Kind.PRODUCT else values(f"{kind.name}.compute")
    if unit is Format.HALF or kind not in (*_PRODUCT_KINDS, *_CONVOLUTION_KINDS):
        return share
    family = "product" if kind in _PRODUCT_KINDS else "convolution"
    return share * values(f"{family}.{unit.name.lower()}")


def _shape(values: Callable[[str], Any], kind: Kind, name: str) -> Any:
    if kind in _CONVOLUTION_KINDS:
        return values(f"convolution.{name}")
    if kind in DEPTHWISE and name == "half_columns":
        return values("depthwise.half_columns")
    if kind in _PRODUCT_KINDS and name != "half_columns":
        return values(f"product.{name}")
    return 0.0 * values("overlap")


def _relaid(values: Callable[[str], Any], kind: Kind, unit: Format) -> Any:
    if kind in DEPTHWISE:
        return values("relaid.depthwise")
    if kind not in _CONVOLUTION_KINDS or unit is Format.FP32:
        return 0.0 * values("overlap")
    return values("relaid.tensor")


Build = Callable[[Callable[[str], Any], Iterable[str], Any], SpeedModel]
"""Makes a model of named values, as :func:`model_of` does."""


class Table:
    """The kernels of many rows in columns, each kind of kernel of a row once where none computes.

    Args:
        rows: With their work traced.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.gpus = sorted({row.gpu for row in rows})
        of_rows = [_kernels(row) for row in rows]
        owners = [index for index, kernels in enumerate(of_rows) for _ in kernels]
        kernels = [kernel for kernels in of_rows for kernel in kernels]
        self._row = torch.tensor(owners)
        self._times = _column([times for _, times, _ in kernels])
        self._launches = _column([launches for _, _, launches in kernels])
        given = [kernel for kernel, _, _ in kernels]
        self._kernels = Kernel(
            **cast(
                Any,
                {
                    "kind": torch.tensor([kernel.kind for kernel in given]),
                    "format": torch.tensor([kernel.format for kernel in given]),
                    **{
                        name: _column([getattr(kernel, name) for kernel in given])
                        for name in (
                            "flops",
                            "bytes_moved",
                            "inner",
                            "columns",
                            "tiles",
                            "relaid",
                        )
                    },
                },
            )
        )
        self._gpu = torch.tensor([self.gpus.index(row.gpu) for row in rows])
        self._host = self._sum(self._launches)

    def seconds(self, model: SpeedModel) -> torch.Tensor:
        """The predicted time of every row's step."""
        rates = [model.rates(gpus()[name]) for name in self.gpus]
        flops = torch.stack(
            [torch.stack(list(map(_tensor, one.flops_per_second))) for one in rates]
        )
        moved = torch.stack([_tensor(one.bytes_per_second) for one in rates])
        parts = torch.tensor([float(one.multiprocessors) for one in rates], dtype=torch.float64)
        gpu = self._gpu[self._row]
        computing = model.computing_seconds(
            self._kernels,
            cast(Any, flops[gpu, cast(Any, self._kernels.format)]),
            cast(Any, parts[gpu]),
        )
        moving = model.moving_seconds(self._kernels, cast(Any, moved[gpu]))
        both = torch.maximum(*_two(moving, computing)) + model.overlap * torch.minimum(
            *_two(moving, computing)
        )
        on_gpu = self._sum(self._launches * model.kernel_seconds + self._times * both)
        return torch.maximum(on_gpu, self._host * model.host_seconds)

    def _sum(self, column: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(self.rows), dtype=torch.float64).index_add(0, self._row, column)


def _two(one: Any, other: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return one, other


def _kernels(row: Row) -> list[tuple[Kernel, float, float]]:
    """The kernels of a row: each with how often it runs, and how many it stands for."""
    computing: Counter[Kernel] = Counter()
    moved: Counter[tuple[int, int]] = Counter()
    launches: Counter[tuple[int, int]] = Counter()
    tf32 = gpus()[row.gpu].tf32_flops is not None
    for operation, times in operations_of(row):
        kernel = kernel_of(operation, tf32=tf32, tf32_products=row.precision == "tf32")
        if kernel is None:
            continue
        if kernel.flops:
            computing[kernel] += times
        else:
            moved[kernel.kind, kernel.format] += times * int(kernel.bytes_moved)
            launches[kernel.kind, kernel.format] += times
    found = [(kernel, float(times), float(times)) for kernel, times in computing.items()]
    return found + [
        (Kernel(*kind, 0.0, total), 1.0, float(launches[kind])) for kind, total in moved.items()
    ]


def _column(values: Sequence[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _tensor(value: Any) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


@dataclass(frozen=True)
class Fitted:
    """Fitted constants.

    Attributes:
        values: By name.
        model: The engine's model with them, of numbers.
    """

    values: dict[str, float]
    model: SpeedModel


def fit(
    table: Table,
    used: torch.Tensor,
    weights: torch.Tensor,
    wanted: Mapping[str, Constant] | None = None,
    build: Build = model_of,
) -> Fitted:
    """Fit the constants to some rows of a table.

    Args:
        table: Of all rows.
        used: Which rows count, as booleans.
        weights: Of each row.
        wanted: What is fitted; by default :func:`constants`.
        build: Makes the model.
    """
    wanted = wanted or constants(table.gpus)
    order = list(wanted)
    origin = _column([math.log(one.start) for one in wanted.values()])
    spread = _column([one.spread for one in wanted.values()])
    # In units of their spread, all constants are alike to the search.
    point = torch.zeros(len(order), dtype=torch.float64, requires_grad=True)
    measured = _column([math.log(row.seconds) for row in table.rows])
    search = torch.optim.LBFGS(
        [point],
        max_iter=_MOST_ITERATIONS,
        tolerance_change=_LEAST_LOSS_CHANGE,
        line_search_fn="strong_wolfe",
    )

    def loss() -> torch.Tensor:
        search.zero_grad()
        logs = origin + spread * point
        values = dict(zip(order, logs.exp().unbind(), strict=True))
        model = build(values.__getitem__, table.gpus, torch.stack)
        error = table.seconds(model).log() - measured
        scaled = (error[used] / _NOISE) ** 2
        total: torch.Tensor = (weights[used] * 2 * ((1 + scaled / 2).sqrt() - 1)).sum() / 2 + (
            point**2
        ).sum() / 2
        total.backward()
        return total

    search.step(loss)
    found = (origin + spread * point.detach()).exp().tolist()
    values = dict(zip(order, found, strict=True))
    return Fitted(values, build(values.__getitem__, table.gpus, list))


def as_table(model: SpeedModel) -> SpeedModel:
    """A model of numbers whose tables can be looked up by tensors."""
    columns = {
        name: _column(list(getattr(model, name)))
        for name in ("bandwidth", "compute", "half_inner", "half_columns", "half_tiles", "relaid")
    }
    return SpeedModel(**{**vars(model), **cast(Any, columns)})
