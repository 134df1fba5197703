"""Predictions for each published row: by the model, by models that never saw it, by others.

``python -m benchmarks.step_time fit`` writes them to ``benchmarks/data/step_time_predictions.csv``,
so that the tables can be printed without tracing anything.
"""

from __future__ import annotations

import csv
import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.step_time.fitting import fit
from benchmarks.step_time.rows import DATA, Row, gpus
from benchmarks.step_time.table import Table
from benchmarks.step_time.work import architecture, operations_of
from engine.core.choices import Precision
from engine.prediction.timing.speed_model import FILE as CONSTANTS
from engine.prediction.timing.speed_model import speed_model
from engine.prediction.timing.step_time import family_of, step_work
from engine.prediction.timing.work import StepTime
from engine.tracing.trace import Operation

FILE = DATA / "step_time_predictions.csv"

FOLDS = 5


@dataclass(frozen=True)
class Predicted:
    """A published row with its predictions, in seconds.

    Attributes:
        fitted: Whether the constants were fitted to this row, among others.
        family: Family of its step.
        measured: The published time.
        predicted: The engine's prediction, with the constants in use.
        unseen: Prediction by constants fitted without any row of its architecture.
        unseen_gpu: Prediction by constants fitted without any row of its GPU.
        filled: Share of the step in which the GPU is filled.
        launch_limited: Whether the GPU waits for its host.
        middle, fastest, slowest: By the constants in use, on the host that is assumed where nothing
            is known of it, and on the fastest and the slowest that are. The others know the host.
    """

    source: str
    gpu: str
    trace: str
    size: int
    precision: str
    optimizer: str
    channels_last: bool
    batch: int
    fitted: bool
    family: str
    measured: float
    predicted: float
    unseen: float
    unseen_gpu: float
    filled: float
    launch_limited: bool
    middle: float
    fastest: float
    slowest: float


def weights_of(rows: Sequence[Row]) -> torch.Tensor:
    """Weights of the rows: timm's many rows of one GPU count half, and our H200's steps.

    Those stand beside the H100's steps and kernels, as rows of one generation and its one kind of
    host. Of the weights 0, ½, 1 and 2, ½ had the smallest errors at the 90th percentile.
    """
    halves = ("timm", "h200")
    return torch.tensor(
        [0.5 if row.source.startswith(halves) else 1.0 for row in rows], dtype=torch.float64
    )


def predict(rows: Sequence[Row], checks: Sequence[Row]) -> list[Predicted]:
    """Predict rows that were fitted, and rows that were not, with the constants in use.

    Args:
        rows: Fitted; those of kernels are left out.
        checks: Not fitted.
    """
    table = Table(rows)
    unseen = _held_out(table, [_fold(architecture(row)) for row in rows])
    unseen_gpu = _held_out(table, [table.gpus.index(row.gpu) % FOLDS for row in rows])
    found = [
        _predicted(row, True, *seconds)
        for row, *seconds in zip(rows, unseen, unseen_gpu, strict=True)
        if not row.kind
    ]
    for row in checks:
        seconds = timed(row).seconds
        found.append(_predicted(row, False, seconds, seconds))
    return found


def _fold(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % FOLDS


def _predicted(row: Row, fitted: bool, unseen: float, unseen_gpu: float) -> Predicted:
    step, assumed = timed(row), timed(row, knows_host=False)
    family = family_of(_every_operation(row))
    return Predicted(
        row.source, row.gpu, row.label, row.size, row.precision, row.optimizer,
        row.channels_last, row.batch, fitted, family, row.seconds, step.seconds, unseen,
        unseen_gpu, step.filled, step.launch_limited,
        assumed.seconds, assumed.fastest, assumed.slowest,
    )  # fmt: skip


def hosts() -> dict[str, float]:
    """The launch times of the hosts that were fitted, in seconds, by source."""
    found: dict[str, float] = tomllib.loads(CONSTANTS.read_text(encoding="utf-8"))["host"]
    return found


def timed(row: Row, *, knows_host: bool = True) -> StepTime:
    """The step of a row as the engine times it.

    Args:
        row: A row with its work traced.
        knows_host: Whether the launch time of the row's host is known.
    """
    precision = Precision.TF32 if row.precision == "tf32" else Precision.FP32
    known = hosts().get(row.source, speed_model().host_seconds) if knows_host else None
    gpu = replace(gpus()[row.gpu], launch_seconds=known)
    return step_work(_every_operation(row), gpu, precision).timed()


def _every_operation(row: Row) -> list[Operation]:
    return [one for one, times in operations_of(row) for _ in range(times)]


def _held_out(table: Table, folds: Sequence[int]) -> list[float]:
    """Each row's time by constants fitted to the other folds, from the start."""
    seconds = torch.zeros(len(table.rows), dtype=torch.float64)
    fold = torch.tensor(folds)
    for number in range(FOLDS):
        without = fit(table, fold != number, weights_of(table.rows))
        here = fold == number
        # Our own hosts are known, as to anyone who has checked their machine
        seconds[here] = without.seconds(table, hosts())[here]
    return seconds.tolist()


def write(rows: Sequence[Predicted], path: Path = FILE) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(field.name for field in fields(Predicted))
        for row in rows:
            lines.writerow(map(_cell, vars(row).values()))


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return f"{value:.4g}" if isinstance(value, float) else value


def read(path: Path = FILE) -> list[Predicted]:
    """Read the predictions.

    Raises:
        OSError: If there are none.
    """
    with path.open(encoding="utf-8", newline="") as file:
        return [_parse(row) for row in csv.DictReader(file)]


def _parse(row: dict[str, str]) -> Predicted:
    parsers: dict[str, Any] = {
        "str": str,
        "int": int,
        "float": float,
        "bool": lambda text: text == "1",
    }
    values = {field.name: parsers[str(field.type)](row[field.name]) for field in fields(Predicted)}
    return Predicted(**values)
