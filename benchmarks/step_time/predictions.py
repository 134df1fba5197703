"""What is predicted for each published row: by the model, by models that never saw it, by others.

``python -m benchmarks.step_time fit`` writes them to ``benchmarks/data/step_time_predictions.csv``,
so that the tables can be printed without tracing anything.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from benchmarks.step_time.fitting import (
    FIVE,
    Table,
    as_table,
    fit,
    five_constants,
)
from benchmarks.step_time.rows import DATA, Row, gpus
from benchmarks.step_time.work import architecture, operations_of
from engine.choices import Precision
from engine.prediction.step_time import Family, StepTime, family_of, step_work

FILE = DATA / "step_time_predictions.csv"

FOLDS = 5


@dataclass(frozen=True)
class Predicted:
    """A published row with its predictions, in seconds.

    Attributes:
        fitted: Whether the constants were fitted to this row, among others.
        family: Of its step.
        measured: As published.
        predicted: By the engine, with the constants in use.
        unseen: By constants fitted without any row of its architecture.
        unseen_gpu: By constants fitted without any row of its GPU.
        before: By the five constants that the engine had assumed.
        five: By five constants fitted to its family, without any row of its architecture.
        filled: Share of the step in which the GPU is filled.
        launch_limited: Whether the GPU waits for its host.
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
    before: float
    five: float
    filled: float
    launch_limited: bool


def weights_of(rows: Sequence[Row]) -> torch.Tensor:
    """How much each row counts: timm's many rows of one GPU half."""
    return torch.tensor(
        [0.5 if row.source.startswith("timm") else 1.0 for row in rows], dtype=torch.float64
    )


def predict(rows: Sequence[Row], checks: Sequence[Row]) -> list[Predicted]:
    """Predict rows that were fitted, and rows that were not, with the constants in use.

    Args:
        rows: Fitted.
        checks: Not fitted.
    """
    table, others = Table(rows), Table(checks)
    families = [family_of([one for one, _ in operations_of(row)]) for row in (*rows, *checks)]
    architectures = [int(architecture(row.work_name), 16) % FOLDS for row in rows]
    places = [table.gpus.index(row.gpu) % FOLDS for row in rows]
    unseen = _held_out(table, architectures)
    unseen_gpu = _held_out(table, places)
    five, five_checks = _five(table, others, families, architectures)
    before = five_constants(lambda name: FIVE[name].start, (), list)
    of_rows = zip(
        rows, families, unseen, unseen_gpu, table.seconds(as_table(before)).tolist(), five,
        strict=False,
    )  # fmt: skip
    found = [_predicted(row, True, *rest) for row, *rest in of_rows]
    old_checks = others.seconds(as_table(before)).tolist()
    for row, family, old, refitted in zip(
        checks, families[len(rows) :], old_checks, five_checks, strict=True
    ):
        seconds = timed(row).seconds
        found.append(_predicted(row, False, family, seconds, seconds, old, refitted))
    return found


def _predicted(
    row: Row,
    fitted: bool,
    family: Family,
    unseen: float,
    unseen_gpu: float,
    before: float,
    five: float,
) -> Predicted:
    step = timed(row)
    return Predicted(
        row.source, row.gpu, row.trace, row.size, row.precision, row.optimizer,
        row.channels_last, row.batch, fitted, family, row.seconds, step.seconds, unseen,
        unseen_gpu, before, five, step.filled, step.launch_limited,
    )  # fmt: skip


def timed(row: Row) -> StepTime:
    """The step of a row as the engine times it."""
    operations = [one for one, times in operations_of(row) for _ in range(times)]
    precision = Precision.TF32 if row.precision == "tf32" else Precision.FP32
    return step_work(operations, gpus()[row.gpu], precision).timed()


def _held_out(table: Table, folds: Sequence[int]) -> list[float]:
    """Each row's time by constants fitted to the other folds, from the start."""
    seconds = torch.zeros(len(table.rows), dtype=torch.float64)
    fold = torch.tensor(folds)
    for number in range(FOLDS):
        without = fit(table, fold != number, weights_of(table.rows))
        here = fold == number
        seconds[here] = table.seconds(as_table(without.model))[here]
    return seconds.tolist()


def _five(
    table: Table, others: Table, families: Sequence[Family], folds: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Times by five constants fitted to each family: of rows held out, and of other rows."""
    weights, fold = weights_of(table.rows), torch.tensor(folds)
    seconds = torch.zeros(len(table.rows), dtype=torch.float64)
    checked = torch.zeros(len(others.rows), dtype=torch.float64)
    for family in Family:
        mine = torch.tensor([one is family for one in families[: len(table.rows)]])
        theirs = torch.tensor([one is family for one in families[len(table.rows) :]])
        for number in range(FOLDS):
            used = mine & (fold != number)
            model = fit(table, used, weights, FIVE, five_constants).model
            here = mine & (fold == number)
            seconds[here] = table.seconds(as_table(model))[here]
        model = fit(table, mine, weights, FIVE, five_constants).model
        checked[theirs] = others.seconds(as_table(model))[theirs]
    return seconds.tolist(), checked.tolist()


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
