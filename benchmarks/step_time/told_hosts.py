"""Hosts known from one measured step: ``python -m benchmarks.step_time.told_hosts``.

The smallest batch of each of our own sweeps gives the launch time of its host, as a recorded
training run does (:mod:`engine.prediction.measured_host`). The other batches are predicted with it,
with the launch time fitted to all steps of that machine, and with the one that is assumed where
nothing is known. Constants are those in use, which were fitted to these steps among others. Tracing
takes some five minutes the first time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.step_time.own import own_rows, trace_missing_own
from benchmarks.step_time.predictions import hosts
from benchmarks.step_time.rows import Row, gpus
from benchmarks.step_time.work import is_traced, operations_of
from engine.core.choices import Precision
from engine.prediction.measured_host import launch_seconds
from engine.prediction.timing.step_time import step_work
from engine.prediction.timing.work import StepWork


@dataclass(frozen=True)
class Errors:
    """Errors of predictions of the larger batches, with one launch time.

    Attributes:
        launch_time: Its source.
        pairs: Number of batches compared with the smallest of their sweep.
        step, step_90: The median error of their step times, and its 90th percentile.
        speedup, speedup_90: The same of the speedup over the smallest batch.
    """

    launch_time: str
    pairs: int
    step: float
    step_90: float
    speedup: float
    speedup_90: float


def sweeps(rows: Sequence[Row]) -> Iterator[tuple[Row, list[Row], float]]:
    """The smallest batch of each sweep that reveals its host, the others, and the launch time."""
    setups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        setups[row.source, row.trace].append(row)
    for found in setups.values():
        smallest, *others = sorted(found, key=lambda row: row.batch)
        told = launch_seconds(_work(smallest, None), smallest.seconds) if others else None
        if told is not None:
            yield smallest, others, told


def errors(rows: Sequence[Row]) -> list[Errors]:
    """The errors with the launch time from each place."""
    pairs = [(smallest, other, told) for smallest, others, told in sweeps(rows) for other in others]
    return [
        _errors("told by the smallest batch", [(a, b, told) for a, b, told in pairs]),
        _errors("fitted to the machine", [(a, b, hosts()[a.source]) for a, b, _ in pairs]),
        _errors("assumed", [(a, b, None) for a, b, _ in pairs]),
    ]


def _errors(name: str, pairs: Sequence[tuple[Row, Row, float | None]]) -> Errors:
    steps, speedups = [], []
    for small, large, launching in pairs:
        before, after = (_work(row, launching).seconds() for row in (small, large))
        steps.append(abs(after / large.seconds - 1))
        # The batches cancel out of the ratio of two speedups.
        speedups.append(abs(before / after * large.seconds / small.seconds - 1))
    return Errors(
        name, len(pairs), median(steps), _ninetieth(steps), median(speedups), _ninetieth(speedups)
    )


def _ninetieth(values: Sequence[float]) -> float:
    return quantiles(values, n=10)[-1]


def _work(row: Row, launching: float | None) -> StepWork:
    operations = [one for one, times in operations_of(row) for _ in range(times)]
    precision = Precision.TF32 if row.precision == "tf32" else Precision.FP32
    return step_work(operations, replace(gpus()[row.gpu], launch_seconds=launching), precision)


def main() -> None:
    rows = [row for row in own_rows() if not row.kind]
    trace_missing_own(rows)
    table = Table(box=box.SIMPLE)
    found = errors(list(filter(is_traced, rows)))
    for name in vars(found[0]):
        table.add_column(name.replace("_", " "))
    for one in found:
        table.add_row(
            *(
                f"{value:.1%}" if isinstance(value, float) else str(value)
                for value in vars(one).values()
            )
        )
    Console().print(table)


if __name__ == "__main__":
    main()
