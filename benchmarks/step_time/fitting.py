"""Fits the constants of step times to published rows, with the engine's own formulas.

The fit minimises the robust squared logarithm of predicted over measured, plus, for each constant,
the squared distance from its starting value: constants that the rows do not determine stay there,
and factors of generations and GPUs shrink towards 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.step_time.rows import OWN
from benchmarks.step_time.table import Hosts, Table, as_table, column
from engine.prediction.timing.kernels import (
    ATTENTIONS,
    COMPUTING,
    DEPTHWISE,
    OWN_DEPTHWISE,
    WITHOUT_TENSOR_CORES,
    Format,
    Kind,
)
from engine.prediction.timing.launches import OF_BERT, Launch
from engine.prediction.timing.speed_model import GENERATIONS, Generation, SpeedModel

_NOISE = 0.08
"""The residual, as a natural logarithm, from which on rows count less than by their square."""
_MIN_LOSS_CHANGE = 1e-7
_MAX_ITERATIONS = 300

_LAUNCHES = {
    Launch.MODULE: 2.0,
    Launch.FUNCTION: 1.0,
    Launch.CAST: 0.7,
    Launch.BACKWARD: 0.7,
    Launch.BACKWARD_CAST: 0.7,
    Launch.OPTIMIZER: 0.4,
}
"""Assumed to begin with: Python around modules takes about as long as what it runs, and neither
autograd's engine nor the update of a parameter runs any."""


_OF_HOPPER = ("earlier", "across", "unaligned_images", "relaid_products")
"""Shares that only Hopper's rows show."""

_PRODUCT_KINDS = (Kind.PRODUCT, Kind.BATCHED_PRODUCT)
_CONVOLUTION_KINDS = tuple(
    kind for kind in COMPUTING if "CONVOLUTION" in kind.name and kind not in WITHOUT_TENSOR_CORES
)

_SHARES = {
    Kind.DEPTHWISE_CONVOLUTION: 0.3,
    Kind.DEPTHWISE_CONVOLUTION_BACKWARD: 0.3,
    Kind.OWN_DEPTHWISE_CONVOLUTION: 0.085,
    Kind.OWN_DEPTHWISE_CONVOLUTION_BACKWARD: 0.05,
    Kind.SINGLE_DEPTHWISE_CONVOLUTION: 0.02,
    Kind.SINGLE_DEPTHWISE_CONVOLUTION_BACKWARD: 0.02,
    Kind.LONG_CONVOLUTION: 0.2,
    Kind.LONG_CONVOLUTION_BACKWARD: 0.5,
    # Those of NeuSight, over what Winograd gains them.
    Kind.CONVOLUTION: 1.0,
}
"""Shares to begin with, where not 0.6.

PyTorch's own depthwise kernels and those of long windows as in our profiles of EfficientNet,
wav2vec 2.0 and HuBERT. cuDNN's in fp32 with the channels last is what is left of ConvNeXt's step.
"""

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
        start: Initial value, which stays if nothing moves it.
        spread: Expected distance from there, as the standard deviation of its logarithm.
    """

    start: float
    spread: float


def constants(gpu_names: Iterable[str]) -> dict[str, Constant]:
    """All constants by name.

    Args:
        gpu_names: Names of the GPUs with rows.
    """
    found = {
        "kernel_seconds": Constant(3e-6, 0.3),
        "overlap": Constant(0.15, 0.7),
        "product.overlap": Constant(0.05, 0.7),
        # Sweeps of Hugging Face's Trainer: 17 to 24 µs (huggingface/transformers#14608).
        "host_seconds": Constant(20e-6, 0.05),
        **{_host(source): Constant(40e-6, 0.5) for source in OWN},
        # Assumed: a single copy from pageable memory reaches half of PCIe 4.0 at best.
        "copy_bytes_per_second": Constant(10e9, 0.3),
        "step_launches": Constant(100, 1.0),
        "product.unaligned": Constant(0.4, 0.5),
        "convolution.unaligned": Constant(0.4, 0.5),
        # Hopper's own instructions reach 990 TFLOP/s, those it has in common with Ampere about 620
        # (https://arxiv.org/abs/2402.13499).
        "earlier": Constant(0.62, 0.5),
        # Our own products in TF32: 300 TFLOP/s along the sums, 140 to 220 across them.
        "across": Constant(0.65, 0.2),
        # Our own convolutions of three colours: 24 to 57 TFLOP/s in any format.
        "unaligned_images": Constant(0.12, 0.5),
        # Our own convolutions of one pixel moved what they read and write once on our H100.
        "relaid_products": Constant(0.05, 0.5),
        "relaid.tensor": Constant(1.0, 0.7),
        "relaid.depthwise": Constant(0.5, 0.7),
        # Our own kernels: 1.9 TFLOP/s over 9 taps and 2.9 over 25, whatever the channels.
        "own_depthwise.half_inner": Constant(11, 0.2),
        "product.half_inner": Constant(64, 0.7),
        "product.half_tiles": Constant(0.3, 0.5),
        "convolution.half_inner": Constant(64, 0.7),
        "convolution.half_columns": Constant(16, 0.7),
        "convolution.half_tiles": Constant(0.3, 0.5),
        "depthwise.half_columns": Constant(16, 0.7),
        "attention.fp32": Constant(1.0, 0.5),
        "product.fp32": Constant(1.1, 0.3),
        # The same units, so the same share; A100: 116 of 156 TFLOP/s in TF32, 230 of 312 in half
        # precision (https://github.com/mli/transformers-benchmarks, read 2026-11-22).
        "product.tf32": Constant(1.0, 0.05),
        # Winograd: NeuSight's 3×3 kernels above 5·10¹⁰ FLOPs ran 1.4 (V100) to 2.6 times (T4) as
        # fast as its products. Smaller filters do not use it.
        "convolution.fp32": Constant(1.5, 0.2),
        "convolution.tf32": Constant(1.0, 0.3),
    }
    for launch, start in _LAUNCHES.items():
        found[f"launch.{launch.name}"] = Constant(start, 0.5)
    for kind in Kind:
        found[f"{kind.name}.bandwidth"] = Constant(0.85, 0.25)
        found[f"{kind.name}.asking"] = Constant(50e9, 1.0)
    for kind in ATTENTIONS:
        found[f"{kind.name}.half_inner"] = Constant(256, 1.0)
        found[f"{kind.name}.half_columns"] = Constant(16, 1.0)
    # Of our own kernels of layer norms and NeuSight's. A row takes about 1.2 ns on a Hopper, and
    # the backward pass reads its tensors twice.
    found["LAYER_NORM.asking"] = Constant(500e9, 0.5)
    found["LAYER_NORM.half_row"] = Constant(8_000, 0.5)
    found["LAYER_NORM_BACKWARD.bandwidth"] = Constant(0.5, 0.25)
    found["LAYER_NORM_BACKWARD.asking"] = Constant(120e9, 0.5)
    for kind in (kind for kind in COMPUTING if kind is not Kind.PRODUCT):
        found[f"{kind.name}.compute"] = Constant(_SHARES.get(kind, 0.6), 0.5)
    found["CONVOLUTION.compute"] = Constant(_SHARES[Kind.CONVOLUTION], 0.15)
    # Our H200 moved 0.9 to 1.1 TB/s in copies of fp32 rows that lie across memory.
    found["TRANSPOSE.bandwidth"] = Constant(0.3, 0.25)
    for name in GENERATIONS.values():
        single, half = JOULES[name]
        found[f"{name}.joules.fp32"] = Constant(single, 0.05)
        found[f"{name}.joules.half"] = Constant(half, 0.1)
        found[f"{name}.tensor"] = Constant(1.0, 0.05)
        found[f"{name}.tf32"] = Constant(1.0, 0.1)
        found[f"{name}.fp32"] = Constant(1.0, 0.15)
        found[f"{name}.bandwidth"] = Constant(1.0, 0.07)
    return found | {f"gpu.{name}": Constant(1.0, 0.1) for name in gpu_names}


def one_of(values: Callable[[str], Any]) -> Any:
    """The number one, as a number or a tensor like the values."""
    return 1.0 + 0.0 * values("kernel_seconds")


def model_of(values: Callable[[str], Any], gpu_names: Iterable[str], stack: Any) -> SpeedModel:
    """The engine's model from named values, numbers or tensors alike.

    Args:
        values: Returns a constant by its name.
        gpu_names: Names of the GPUs with rows.
        stack: Makes a table of a list of values.
    """
    mean = _mean_launch(values)
    return SpeedModel(
        kernel_seconds=values("kernel_seconds"),
        overlap=stack([_overlap(values, kind) for kind in Kind]),
        host_seconds=values("host_seconds"),
        copy_bytes_per_second=values("copy_bytes_per_second"),
        launches=stack([values(f"launch.{launch.name}") / mean for launch in Launch]),
        step_launches=values("step_launches") / mean,
        bandwidth=stack([values(f"{kind.name}.bandwidth") for kind in Kind]),
        asking=stack([values(f"{kind.name}.asking") for kind in Kind]),
        compute=stack([_compute(values, kind, unit) for kind in Kind for unit in Format]),
        half_inner=stack([_shape(values, kind, "half_inner") for kind in Kind]),
        half_columns=stack([_shape(values, kind, "half_columns") for kind in Kind]),
        half_tiles=stack([_shape(values, kind, "half_tiles") for kind in Kind]),
        half_row=stack([_half_row(values, kind) for kind in Kind]),
        relaid=stack([_relaid(values, kind, unit) for kind in Kind for unit in Format]),
        unaligned=stack([_unaligned(values, kind, unit) for kind in Kind for unit in Format]),
        generations={
            name: Generation(
                joules_per_flop=[
                    values(f"{name}.joules.fp32"),
                    2 * values(f"{name}.joules.half"),  # half as many FLOPs for each number read
                    values(f"{name}.joules.half"),
                ],
                flops=[
                    values(f"{name}.fp32"),
                    values(f"{name}.tensor") * values(f"{name}.tf32"),
                    values(f"{name}.tensor"),
                ],
                bandwidth=values(f"{name}.bandwidth"),
                **{
                    share: values(share) if name == "hopper" else one_of(values)
                    for share in _OF_HOPPER
                },
            )
            for name in GENERATIONS.values()
        },
        gpus={name: values(f"gpu.{name}") for name in gpu_names},
    )


def _mean_launch(values: Callable[[str], Any]) -> Any:
    """The average cost of one operation of BERT's step, in the units of the constants."""
    total = values("step_launches")
    for launch, times in OF_BERT.items():
        total = total + times * values(f"launch.{launch.name}")
    return total / sum(OF_BERT.values())


def _compute(values: Callable[[str], Any], kind: Kind, unit: Format) -> Any:
    """The share of kind and format: that of half precision, times what the format changes.

    The sustained rate is that of products, so theirs is 1.
    """
    one = one_of(values)
    if kind not in COMPUTING:
        return one
    share = one if kind is Kind.PRODUCT else values(f"{kind.name}.compute")
    if kind in ATTENTIONS and unit is not Format.HALF:
        return share * values("attention.fp32")
    if unit is Format.HALF or kind not in (*_PRODUCT_KINDS, *_CONVOLUTION_KINDS):
        return share
    family = "product" if kind in _PRODUCT_KINDS else "convolution"
    return share * values(f"{family}.{unit.name.lower()}")


def _shape(values: Callable[[str], Any], kind: Kind, name: str) -> Any:
    if kind in _CONVOLUTION_KINDS:
        return values(f"convolution.{name}")
    if kind in DEPTHWISE and name == "half_columns":
        return values("depthwise.half_columns")
    if kind in OWN_DEPTHWISE and name == "half_inner":
        return values("own_depthwise.half_inner")
    if kind in ATTENTIONS and name != "half_tiles":
        return values(f"{kind.name}.{name}")
    if kind in _PRODUCT_KINDS and name != "half_columns":
        return values(f"product.{name}")
    return 0.0 * values("overlap")


def _half_row(values: Callable[[str], Any], kind: Kind) -> Any:
    return values("LAYER_NORM.half_row") if kind is Kind.LAYER_NORM else 0.0 * values("overlap")


def _relaid(values: Callable[[str], Any], kind: Kind, unit: Format) -> Any:
    if kind in DEPTHWISE:
        return values("relaid.depthwise")
    if kind not in _CONVOLUTION_KINDS or unit is Format.FP32:
        return 0.0 * values("overlap")
    return values("relaid.tensor")


def _overlap(values: Callable[[str], Any], kind: Kind) -> Any:
    """A share, whatever the value."""
    value = values("product.overlap" if kind in _PRODUCT_KINDS else "overlap")
    return value / (1 + value)


def _unaligned(values: Callable[[str], Any], kind: Kind, unit: Format) -> Any:
    """Numbers of TF32 are twice as long as those of half precision, so half as much is lost."""
    families = {"product": _PRODUCT_KINDS, "convolution": _CONVOLUTION_KINDS}
    family = next((name for name, kinds in families.items() if kind in kinds), None)
    if unit is Format.FP32 or family is None:
        return one_of(values)
    share = values(f"{family}.unaligned")
    return (1 + share) / 2 if unit is Format.TF32 else share


@dataclass(frozen=True)
class Fitted:
    """Fitted constants.

    Attributes:
        values: Values by name.
        model: The engine's model with them, of numbers.
    """

    values: dict[str, float]
    model: SpeedModel

    @property
    def hosts(self) -> Hosts:
        return hosts_of(self.values)

    def seconds(self, table: Table, hosts: Hosts | None = None) -> torch.Tensor:
        """The predicted time of every row's step.

        Args:
            table: Table of the rows.
            hosts: Where rows of them were not fitted.
        """
        return table.seconds(as_table(self.model), hosts or self.hosts)


def hosts_of(values: Mapping[str, Any]) -> Hosts:
    """The hosts of our own measurements."""
    return {source: values[_host(source)] for source in OWN}


def _host(source: str) -> str:
    return f"host.{source}"


def fit(table: Table, used: torch.Tensor, weights: torch.Tensor) -> Fitted:
    """Fit the constants to some rows of a table.

    Args:
        table: Table of all rows.
        used: The rows that count, as booleans.
        weights: Weight of each row.
    """
    wanted = constants(table.gpus)
    order = list(wanted)
    origin = column([math.log(one.start) for one in wanted.values()])
    spread = column([one.spread for one in wanted.values()])
    # In units of their spread, all constants are alike to the search.
    point = torch.zeros(len(order), dtype=torch.float64, requires_grad=True)
    measured = column([math.log(row.seconds) for row in table.rows])
    search = torch.optim.LBFGS(
        [point],
        max_iter=_MAX_ITERATIONS,
        tolerance_change=_MIN_LOSS_CHANGE,
        line_search_fn="strong_wolfe",
    )

    def loss() -> torch.Tensor:
        search.zero_grad()
        logs = origin + spread * point
        values = dict(zip(order, logs.exp().unbind(), strict=True))
        model = model_of(values.__getitem__, table.gpus, torch.stack)
        error = table.seconds(model, hosts_of(values)).log() - measured
        scaled = (error[used] / _NOISE) ** 2
        total: torch.Tensor = (weights[used] * 2 * ((1 + scaled / 2).sqrt() - 1)).sum() / 2 + (
            point**2
        ).sum() / 2
        total.backward()
        return total

    search.step(loss)
    found = (origin + spread * point.detach()).exp().tolist()
    values = dict(zip(order, found, strict=True))
    return Fitted(values, model_of(values.__getitem__, table.gpus, list))
