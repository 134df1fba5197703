"""Predictions against a sweep on an H200, whose memory nothing was fitted to.

    python -m benchmarks.h200 [--json]

The trials are those of ``python -m benchmarks.gpu sweep`` in ``benchmarks/data/h200.csv``. No GPU
is needed. Steps are predicted three times, as the host's launch time is known: not at all, from a
self-check of that machine, or from the smallest batch of the same workload, as a recorded training
run gives it. The steps are among those that the constants are fitted to.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.h100 import MEMORY, ROOT, python_of_measurements, read_settings

TRIALS = Path(__file__).parent / "data" / "h200.csv"
LAUNCH_SECONDS = 27.5e-6
"""By the self-check on the machine of the first rows. Two others there found 34 and 41 µs."""
MIN_STEPS = 10
"""Steps below which a group has no row of its own."""
HOSTS = ("not known", "by a self-check", "by the smallest batch")


@dataclass(frozen=True)
class Step:
    """A predicted step: seconds, and the interval of them."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """A trial with its predictions.

    Attributes:
        name: The model and its settings.
        measured: Bytes by what is counted.
        predicted: The same.
        low, high: The interval of the device memory used, in bytes.
        seconds: The measured step.
        steps: The predicted step by what is known of the host; a workload's smallest batch tells
            nothing of itself.
        speedups: The predicted speedup over the workload's smallest batch, with its interval, by
            what is known of the host; empty for that batch.
        launch_limited: Whether the host decides the step, by the first of the predictions.
    """

    name: str
    batch_size: int
    measured: Mapping[str, int]
    predicted: Mapping[str, int]
    low: int
    high: int
    seconds: float
    steps: Mapping[str, Step]
    speedups: Mapping[str, Step]
    launch_limited: bool


def orders(text: str) -> list[dict[str, Any]]:
    """The rows of ``h200.csv`` that fitted, as :mod:`benchmarks.h200_predicting` takes them."""
    return [
        {
            "name": f"{row['model']} {row['settings']}".strip(),
            "fields": {"model": row["model"]} | read_settings(row["settings"]),
            "batch_size": int(row["batch_size"]),
            "measured": {counted: int(row[counted]) for counted in MEMORY},
            "seconds": float(row["step_seconds"]),
        }
        for row in csv.DictReader(text.splitlines())
        if row["fits"] == "True"
    ]


def predict(asked: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """Predict them with the packages of the measurements.

    Raises:
        EngineError: If the environment of the measurements cannot be made.
        CalledProcessError: If predicting ends early; it has said why.
    """
    done = subprocess.run(
        [os.fspath(python_of_measurements()), "-m", "benchmarks.h200_predicting"],
        cwd=ROOT,
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [read(one) for one in json.loads(done.stdout)]


def read(stored: Mapping[str, Any]) -> Compared:
    """A comparison from its JSON."""
    steps = {
        part: {name: Step(**step) for name, step in stored[part].items()}
        for part in ("steps", "speedups")
    }
    return Compared(**{**stored, **steps})


def speedup(smallest: Compared, other: Compared) -> float:
    """The measured speedup of a batch over the smallest."""
    return (other.batch_size / other.seconds) / (smallest.batch_size / smallest.seconds)


def figures(compared: Sequence[Compared]) -> dict[str, Any]:
    """Errors and intervals, of memory and by what is known of the host."""
    smallest: dict[str, Compared] = {}
    for one in compared:
        smallest.setdefault(one.name, one)
    memory = {
        counted: _errors(one.predicted[counted] / one.measured[counted] for one in compared)
        for counted in MEMORY
    }
    used = [(one.low, one.measured["device_used_bytes"], one.high) for one in compared]
    steps, speedups = {}, {}
    for host in HOSTS:
        known = [(one, one.steps[host]) for one in compared if host in one.steps]
        groups = {
            "all": known,
            "the host decides": [pair for pair in known if pair[0].launch_limited],
            "the GPU decides": [pair for pair in known if not pair[0].launch_limited],
        }
        steps[host] = {
            name: _judged((step, one.seconds) for one, step in group)
            for name, group in groups.items()
            if len(group) >= MIN_STEPS
        }
        speedups[host] = _judged(
            (one.speedups[host], speedup(smallest[one.name], one))
            for one in compared
            if host in one.speedups
        )
    return {
        "memory": memory,
        "device_used_within": sum(low <= measured <= high for low, measured, high in used),
        "device_used_above": sum(measured > high for _, measured, high in used),
        "trials": len(compared),
        "workloads": len(smallest),
        "steps": steps,
        "speedups": speedups,
    }


def _errors(ratios: Iterable[float]) -> dict[str, float]:
    """The median of the errors without their signs, and their 95th percentile and largest."""
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    return {
        "median": median(errors),
        "percentile_95": quantiles(errors, n=20)[-1],
        "worst": errors[-1],
    }


def _judged(pairs: Iterable[tuple[Step, float]]) -> dict[str, float]:
    """Errors of predictions, and the share of measurements within their intervals."""
    known = list(pairs)
    errors = sorted(abs(step.seconds / measured - 1) for step, measured in known)
    return {
        "compared": len(known),
        "median": median(errors),
        "percentile_90": quantiles(errors, n=10)[-1],
        "within": sum(s.low <= measured <= s.high for s, measured in known) / len(known),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict and compare; print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h200", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON, with every row")
    chosen = parser.parse_args(arguments)
    compared = predict(orders(TRIALS.read_text(encoding="utf-8")))
    found = figures(compared)
    if chosen.json:
        rows = [asdict(one) for one in compared]
        sys.stdout.write(json.dumps(found | {"rows": rows}, indent=1) + "\n")
        return 0
    console = Console()
    console.print(_memory_table(found))
    console.print(_time_table(found))
    return 0


def _memory_table(found: Mapping[str, Any]) -> Table:
    inside = f"{found['device_used_within']} of {found['trials']} intervals of device memory hold"
    table = Table(box=box.SIMPLE, title=f"{inside}, {found['device_used_above']} are exceeded")
    for heading in ("predicted vs. measured", "median", "95th percentile", "worst"):
        table.add_column(heading)
    for counted, errors in found["memory"].items():
        table.add_row(counted, *(f"{share:.2%}" for share in errors.values()))
    return table


def _time_table(found: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE)
    headings = ("launch time", "of", "compared", "median", "90th percentile", "within interval")
    for heading in headings:
        table.add_column(heading)
    for host in HOSTS:
        named = {f"steps, {name}": one for name, one in found["steps"][host].items()}
        for name, one in (named | {"speedups": found["speedups"][host]}).items():
            shares = (one["median"], one["percentile_90"], one["within"])
            table.add_row(host, name, str(one["compared"]), *(f"{share:.1%}" for share in shares))
    return table


if __name__ == "__main__":
    sys.exit(main())
