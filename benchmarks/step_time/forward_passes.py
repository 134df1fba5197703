"""Forward passes on GPUs that came later: ``python -m benchmarks.step_time.forward_passes``.

No training step was published for a GeForce RTX 5090 or an RTX PRO 6000. timm's inference tables
have the forward passes of the same models on them, on an RTX 4090 and on an RTX 3090, in fp16 with
autocast. None of them is fitted: they show whether the constants hold on GPUs that came later, and
what a release of PyTorch changes. Tracing takes some three minutes the first time.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.step_time.predictions import timed
from benchmarks.step_time.rows import DATA, Row
from benchmarks.step_time.work import FORWARD, is_traced, trace_missing

FILE = DATA / "forward_passes.csv"


@dataclass(frozen=True)
class Errors:
    """Errors of predicted forward passes on one GPU.

    Attributes:
        torch: The release of PyTorch.
        rows: Number of models.
        bias: The median of predicted over measured time, less 1: below 0 is too fast.
        error: The median error, either way.
        percentile_90: The 90th percentile of the same.
    """

    torch: str
    gpu: str
    rows: int
    bias: float
    error: float
    percentile_90: float


@dataclass(frozen=True)
class Ratios:
    """Speed of one GPU relative to another, or of one release of PyTorch, on the same models.

    Attributes:
        measured, predicted: The median.
        error: The median error of the predicted ratio.
    """

    what: str
    rows: int
    measured: float
    predicted: float
    error: float


def read() -> list[Row]:
    """The forward passes, with the release of PyTorch as their source."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                source=row["torch"],
                gpu=row["gpu"],
                trace=row["trace"],
                size=int(row["size"]),
                precision="fp16-mixed",
                optimizer=FORWARD,
                batch=int(row["batch"]),
                channels_last=False,
                seconds=float(row["forward_ms"]) / 1e3,
            )
            for row in csv.DictReader(file)
        ]


def errors(rows: Sequence[Row]) -> list[Errors]:
    """The errors of rows that are traced, by release and GPU."""
    by_gpu: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        by_gpu[row.source, row.gpu].append(timed(row).seconds / row.seconds - 1)
    return [
        Errors(
            torch,
            gpu,
            len(found),
            median(found),
            median(map(abs, found)),
            quantiles(map(abs, found), n=10)[-1],
        )
        for (torch, gpu), found in by_gpu.items()
    ]


def ratios(rows: Sequence[Row]) -> list[Ratios]:
    """Every two setups of the same release or of the same GPU."""
    setups: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        setups[row.source, row.gpu][row.trace] = row
    named = list(setups.items())
    return [
        _ratio(one, other, setups[one], setups[other])
        for index, (one, _) in enumerate(named)
        for other, _ in named[index + 1 :]
        if one[0] == other[0] or one[1] == other[1]
    ]


def _ratio(
    one: tuple[str, str], other: tuple[str, str], before: dict[str, Row], after: dict[str, Row]
) -> Ratios:
    models = [name for name in before if name in after]
    measured = [_speed(after[name]) / _speed(before[name]) for name in models]
    predicted = [_predicted_speed(after[name]) / _predicted_speed(before[name]) for name in models]
    what = f"{other[1]} over {one[1]}" if one[0] == other[0] else f"{other[0]} over {one[0]}"
    off = [abs(p / m - 1) for m, p in zip(measured, predicted, strict=True)]
    return Ratios(what, len(models), median(measured), median(predicted), median(off))


def _speed(row: Row) -> float:
    return row.batch / row.seconds


def _predicted_speed(row: Row) -> float:
    return row.batch / timed(row).seconds


def main() -> None:
    rows = read()
    trace_missing(rows)
    traced = list(filter(is_traced, rows))
    for found in (errors(traced), ratios(traced)):
        Console().print(_table(found))


def _table(found: Sequence[Errors] | Sequence[Ratios]) -> Table:
    table = Table(box=box.SIMPLE)
    for name in vars(found[0]):
        table.add_column(name.replace("_", " "))
    for one in found:
        table.add_row(*(_cell(name, value) for name, value in vars(one).items()))
    return table


def _cell(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}×" if name in ("measured", "predicted") else f"{value:+.1%}"


if __name__ == "__main__":
    main()
