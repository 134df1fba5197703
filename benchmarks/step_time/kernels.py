"""Kernels that others measured: ``python -m benchmarks.step_time.kernels``.

Constants are fitted to whole steps, and to kernels of our own H100. Here the same formula predicts
kernels one by one: those of NeuSight's data set, in fp32 on seven GPUs, and the fastest products
that others reached in half precision, on Hopper, Blackwell and other GPUs. None of these rows is
fitted, but some constants start from such measurements: joules per FLOP, the rates of fp32
convolutions and of layer norms (:mod:`benchmarks.step_time.fitting`).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.step_time.rows import DATA, gpus
from engine.core.choices import Precision
from engine.gpus import Gpu
from engine.prediction.timing.kernels import kind_of
from engine.prediction.timing.step_time import step_work
from engine.tracing.trace import Operation

KERNELS, RATES = DATA / "kernels.csv", DATA / "matrix_rates.csv"

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of one number."""
_BINARY, _UNARY = ("add", "mul", "pow", "div"), ("addu", "mulu", "powu", "divu")
_ACTIVATIONS = {"relu": "aten.relu", "gelu": "aten.gelu", "tanh": "aten.tanh"}

_TOKENS = 8192
_WEIGHTS = [*[(4096, 4096), (1024, 4096), (14336, 4096)] * 2, (4096, 14336)]
"""Columns and length of the sums of the products in one layer of Llama 3.1 8B."""


@dataclass(frozen=True)
class Kernel:
    """One measured kernel.

    Attributes:
        gpu: Its name, as in :func:`~benchmarks.step_time.rows.gpus`.
        seconds: Time from an event before its call to one after it, the launch included.
    """

    gpu: str
    operation: Operation
    seconds: float


@dataclass(frozen=True)
class Errors:
    """Errors of predicted kernels of one kind on one GPU.

    Attributes:
        rows: Number of kernels.
        error: The median error of predicted times, either way, as a share.
        ninetieth: The 90th percentile of the same.
        ratio: The median of predicted over measured time: below 1 is too fast.
    """

    gpu: str
    kind: str
    dtype: str
    rows: int
    error: float
    ninetieth: float
    ratio: float


@dataclass(frozen=True)
class Rate:
    """The fastest product that was found on one GPU, in bf16.

    Attributes:
        shape: Rows, columns and the length of the sums.
        measured, predicted: Its rate, in TFLOP/s.
        ratio: Predicted time over the measured one: below 1 is too fast.
    """

    source: str
    gpu: str
    shape: str
    measured: float
    predicted: float
    ratio: float


@dataclass(frozen=True)
class Gain:
    """Speed of one part of a step on a B200, relative to an H200.

    Measured in steps of one text of 8,192 tokens on eight GPUs each, in bf16, with FlashAttention 3
    and 4, torch 2.13 (``insights/when-to-upgrade-gpus`` of
    https://github.com/stas00/ml-engineering, commit 744d01e, read 2026-11-27).
    """

    part: str
    measured: float
    predicted: float


def read(path: Path = KERNELS) -> list[Kernel]:
    """The measured kernels of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Kernel(
                row["gpu"],
                operation_of(row["operator"], row["dtype"], [*map(int, row["shape"].split("x"))]),
                float(row["ms"]) / 1e3,
            )
            for row in csv.DictReader(file)
        ]


def operation_of(operator: str, dtype: str, shape: Sequence[int]) -> Operation:
    """The operation of a trace that a kernel's call is.

    Args:
        operator: Its name in NeuSight's ``collect.py``; the names of binary operators that end
            with a u have a number for their second operand.
        dtype: Number format of its tensors.
        shape: For a product: count, rows, the length of the sums, columns. For a convolution:
            images, input and output channels, side of the filter, side of the image, stride,
            padding. For others: rows and columns.

    Raises:
        KeyError: If the operator or the format is not known.
    """
    if operator in ("linear", "bmm"):
        return _product(operator, dtype, shape)
    if operator == "conv":
        return _convolution(dtype, shape)
    rows, columns = shape
    numbers = 2 * rows * columns
    if operator in _BINARY:
        name, numbers = f"aten.{operator}", 3 * rows * columns
    elif operator in _UNARY:
        name = f"aten.{operator.removesuffix('u')}"
    elif operator == "softmax":
        name = "aten._softmax"
    elif operator == "ln":  # weight and bias; mean and standard deviation of every row
        name, numbers = "aten.native_layer_norm", numbers + 2 * columns + 2 * rows
    else:
        name = _ACTIVATIONS[operator]
    row = (columns,) if operator == "ln" else ()
    return Operation(name, dtype, 0, _BYTES[dtype] * numbers, "forward", row)


def _product(operator: str, dtype: str, shape: Sequence[int]) -> Operation:
    times, rows, inner, columns = shape
    numbers = times * (rows * inner + inner * columns + rows * columns)
    if operator == "linear":  # one product of all rows, with a bias
        times, rows = 1, times * rows
        numbers = rows * inner + inner * columns + rows * columns + columns
    return Operation(
        "aten.addmm" if operator == "linear" else "aten.bmm",
        dtype,
        2 * times * rows * inner * columns,
        _BYTES[dtype] * numbers,
        "forward",
        (times, rows, columns, inner, 0),
    )


def _convolution(dtype: str, shape: Sequence[int]) -> Operation:
    images, inputs, outputs, filter_side, side, stride, padding = shape
    pixels = ((side + 2 * padding - filter_side) // stride + 1) ** 2
    positions, taps = images * pixels, filter_side**2
    is_product = taps == 1 and pixels == side**2
    numbers = images * inputs * side**2 + outputs * inputs * taps + positions * outputs
    return Operation(
        "aten.convolution",
        dtype,
        2 * positions * outputs * inputs * taps,
        _BYTES[dtype] * numbers,
        "forward",
        (positions, outputs, inputs, taps, 1, pixels * is_product),
    )


def predicted_seconds(gpu: Gpu, operation: Operation) -> float:
    """The time of one kernel, without its launch.

    TF32 was off in NeuSight's measurements, of convolutions too, so the GPU is taken to have none.
    """
    without_tf32 = replace(gpu, tf32_flops=None)
    return step_work([operation], without_tf32, Precision.FP32).timed().gpu_seconds


def errors(rows: Iterable[Kernel]) -> list[Errors]:
    """The errors by kind, number format and GPU, in the order of the rows."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        kind, dtype = kind_of(row.operation).name, row.operation.dtype
        ratio = predicted_seconds(gpus()[row.gpu], row.operation) / row.seconds
        found[row.gpu, kind, dtype].append(ratio)
    return [_errors(*group, ratios) for group, ratios in found.items()]


def _errors(gpu: str, kind: str, dtype: str, ratios: Sequence[float]) -> Errors:
    off = [abs(ratio - 1) for ratio in ratios]
    ninetieth = quantiles(off, n=10)[-1] if len(off) > 1 else off[0]
    name = kind.lower().replace("_", " ")
    return Errors(gpu, name, dtype, len(off), median(off), ninetieth, median(ratios))


def rates(path: Path = RATES) -> list[Rate]:
    """The published rates of a file, each beside the one predicted of the same product."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            _rate(
                row["source"],
                row["gpu"],
                (int(row["rows"]), int(row["columns"]), int(row["inner"])),
                float(row["tflops"]),
            )
            for row in csv.DictReader(file)
        ]


def _rate(source: str, gpu: str, shape: tuple[int, int, int], measured: float) -> Rate:
    product = _mm(*shape)
    predicted = product.flops / predicted_seconds(gpus()[gpu], product) / 1e12
    name = "x".join(map(str, shape))
    return Rate(source, gpu, name, measured, predicted, measured / predicted)


def _mm(rows: int, columns: int, inner: int) -> Operation:
    numbers = rows * inner + inner * columns + rows * columns
    return Operation(
        "aten.mm",
        "bfloat16",
        2 * rows * columns * inner,
        _BYTES["bfloat16"] * numbers,
        "forward",
        (1, rows, columns, inner, 0),
    )


def gains() -> list[Gain]:
    """The gains of a B200 over an H200 in the two parts of a step of Llama 3.1 8B."""
    return [
        Gain("attention", 1.87, _gain([_attention(""), _attention("_backward")])),
        Gain("products, of all else", 1.67, _gain(_products_of_llama())),
    ]


def _gain(operations: Sequence[Operation]) -> float:
    before, after = (
        math.fsum(predicted_seconds(gpus()[name], operation) for operation in operations)
        for name in ("h200", "b200")
    )
    return before / after


def _attention(suffix: str) -> Operation:
    heads, width = 32, 128
    passes, tensors = (2.5, 8) if suffix else (1, 4)
    return Operation(
        f"aten._scaled_dot_product_flash_attention{suffix}",
        "bfloat16",
        int(passes * 4 * heads * _TOKENS**2 * width),
        _BYTES["bfloat16"] * tensors * heads * _TOKENS * width,
        "backward" if suffix else "forward",
        (heads, _TOKENS, _TOKENS, width, 1),
    )


def _products_of_llama() -> list[Operation]:
    """Forward, and for the gradients of both factors."""
    found = []
    for columns, inner in _WEIGHTS:
        for shape in (
            (_TOKENS, columns, inner),
            (_TOKENS, inner, columns),
            (columns, inner, _TOKENS),
        ):
            found.append(_mm(*shape))
    return found


def main() -> None:
    for found in (errors(read()), rates(), gains()):
        Console().print(_table(found))


def _table(found: Sequence[Errors] | Sequence[Rate] | Sequence[Gain]) -> Table:
    table = Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False)
    for name in vars(found[0]):
        table.add_column(name, no_wrap=True)
    for one in found:
        table.add_row(*(_cell(name, value) for name, value in vars(one).items()))
    return table


def _cell(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if name in ("error", "ninetieth"):
        return f"{value:.1%}"
    return f"{value:.2f}×" if name == "ratio" or value < 10 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
