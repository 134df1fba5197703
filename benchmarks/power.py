"""Fits the power of a GPU in training to published runs, and reports the error.

``python -m benchmarks.power`` prints the rule of :mod:`engine.answer.energy` as fitted to
``benchmarks/data/power.csv``, and its errors on workloads and GPUs that were left out.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path

from benchmarks.errors import Errors
from engine.answer.energy import ALIKE
from engine.prediction.timing.past_errors import percentile

DATA = Path(__file__).with_name("data") / "power.csv"
WAITS_FOR_DATA = {"ncf"}
"""Networks whose GPU is idle at every batch size, so that their speed says nothing of its load."""
LOADS = [tenths / 10 for tenths in range(3, 11)]
"""Candidate loads at which the power stops rising."""


@dataclass(frozen=True)
class Run:
    """One published training run.

    Attributes:
        load: Its speed over that of the fastest batch of its sweep.
        share: Its mean power over the GPU's power limit.
    """

    gpu: str
    network: str
    sweep: tuple[str, ...]
    batch_size: int
    load: float
    share: float


@dataclass(frozen=True)
class Rule:
    """Power as a share of the limit: a line from ``idle``, which ends at ``busy`` and ``load``."""

    idle: float
    busy: float
    load: float

    def share(self, load: float) -> float:
        return self.idle + (self.busy - self.idle) * min(1.0, load / self.load)


def read_runs(path: Path = DATA) -> list[Run]:
    """The runs of the file, those that wait for their data too."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    sweeps: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("gpu", "dataset", "network", "optimizer"))
        sweeps.setdefault(key, []).append(row)
    return [
        Run(
            gpu=row["gpu"],
            network=row["network"],
            sweep=sweep,
            batch_size=int(row["batch_size"]),
            load=fastest / float(row["epoch_seconds"]),
            share=float(row["average_watts"]) / float(row["power_limit_watts"]),
        )
        for sweep, of_it in sweeps.items()
        for fastest in [min(float(row["epoch_seconds"]) for row in of_it)]
        for row in of_it
    ]


def fit(runs: Sequence[Run], load: float | None = None) -> Rule:
    """The rule with the least relative squared error; of all :data:`LOADS` where none is given."""
    rules = [_line(runs, end) for end in (LOADS if load is None else [load])]
    return min(rules, key=lambda rule: sum(error**2 for error in _errors(rule, runs)))


def _line(runs: Sequence[Run], end: float) -> Rule:
    """Weighted least squares for ``share = idle + slope * min(1, load / end)``."""
    points = [(min(1.0, run.load / end), run.share, run.share**-2) for run in runs]
    total = sum(weight for _, _, weight in points)
    x = sum(weight * load for load, _, weight in points) / total
    y = sum(weight * share for _, share, weight in points) / total
    spread = sum(weight * (load - x) ** 2 for load, _, weight in points)
    slope = sum(weight * (load - x) * (share - y) for load, share, weight in points) / spread
    return Rule(y - slope * x, y - slope * x + slope, end)


def _errors(rule: Rule, runs: Iterable[Run]) -> list[float]:
    """Predicted over measured power, less one."""
    return [rule.share(run.load) / run.share - 1 for run in runs]


def left_out(runs: Sequence[Run], load: float, key: Callable[[Run], str]) -> list[tuple[Run, Rule]]:
    """Each run with the rule fitted to the runs that differ from it in ``key``."""
    rules = {
        name: fit([run for run in runs if key(run) != name], load) for name in set(map(key, runs))
    }
    return [(run, rules[key(run)]) for run in runs]


def ratios(pairs: Sequence[tuple[Run, Rule]], *, alike: bool) -> list[float]:
    """Measured over predicted ratio of power, for every two batches of a sweep.

    Args:
        pairs: Runs with the rule that predicts each.
        alike: Runs whose power the rule has within :data:`ALIKE` of each other, or the rest.
    """
    found = []
    in_order = sorted(pairs, key=lambda pair: (pair[0].sweep, pair[0].batch_size))
    for _, sweep in groupby(in_order, key=lambda pair: pair[0].sweep):
        for (small, rule), (large, _) in combinations(list(sweep), 2):
            predicted = rule.share(large.load) / rule.share(small.load)
            if (1 / ALIKE <= predicted <= ALIKE) == alike:
                found.append(large.share / small.share / predicted)
    return found


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 5th and the 95th percentile."""
    return percentile(ratios, 0.05), percentile(ratios, 0.95)


def report(runs: Sequence[Run]) -> str:
    """The rule and its errors as a table."""
    fitted = [run for run in runs if run.network not in WAITS_FOR_DATA]
    waiting = [run for run in runs if run.network in WAITS_FOR_DATA]
    rule = fit(fitted)
    by_network = left_out(fitted, rule.load, lambda run: run.network)
    by_gpu = left_out(fitted, rule.load, lambda run: run.gpu)
    lines = [
        f"share of the power limit = {rule.idle:.3f} + {rule.busy - rule.idle:.3f} * "
        f"min(1, load / {rule.load:.1f}), fitted to {len(fitted)} runs",
        "",
        "| power, left out of the fit | runs | median error | 95th percentile | worst |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, pairs in (("its workload", by_network), ("its GPU", by_gpu)):
        lines.append(_row(name, [rule.share(run.load) / run.share - 1 for run, rule in pairs]))
    for gpu in sorted({run.gpu for run in fitted}):
        lines.append(_row(gpu, [e for r, p in by_gpu if r.gpu == gpu for e in _errors(p, [r])]))
    lines.append(_row("waits for data, not fitted", _errors(rule, waiting)))
    lines += ["", "| measured over predicted | 5th to 95th percentile |", "| --- | --- |"]
    both = [*by_network, *by_gpu]
    for name, found in (
        ("power", [run.share / rule.share(run.load) for run, rule in both]),
        ("ratio of two batches, within 20%", _ratios_of(by_network, by_gpu, alike=True)),
        ("ratio of two batches, else", _ratios_of(by_network, by_gpu, alike=False)),
    ):
        low, high = interval(found)
        lines.append(f"| {name} | {low:.2f} to {high:.2f} |")
    return "\n".join(lines)


def _ratios_of(*splits: Sequence[tuple[Run, Rule]], alike: bool) -> list[float]:
    return [ratio for pairs in splits for ratio in ratios(pairs, alike=alike)]


def _row(name: str, errors: Sequence[float]) -> str:
    found = Errors.of(errors)
    return (
        f"| {name} | {found.compared} | {found.median:.1%} | {found.percentile_95:.1%} | "
        f"{found.worst:.1%} |"
    )


if __name__ == "__main__":
    sys.stdout.write(report(read_runs()) + "\n")
