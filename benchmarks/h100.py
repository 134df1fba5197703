"""Holds predicted memory against what was measured on one H100: ``python -m benchmarks.h100``.

The measurements are in ``benchmarks/data/h100.csv``, and in the file that ``python -m
benchmarks.gpu run`` wrote there, whose predictions are written anew. No GPU is needed. Predictions
are made with the transformers of the measurements.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.errors import Errors
from benchmarks.estimators import environment_with
from benchmarks.gpu.report import limits
from benchmarks.gpu.results import Results, load
from engine.prediction.timing.intervals import Counted

ROOT = Path(__file__).parents[1]
TRIALS = Path(__file__).parent / "data" / "h100.csv"
RUN = Path(__file__).parent / "results" / "nvidia-h100-80gb-hbm3-torch-2.11.0.json"
SOFTWARE = {"transformers": "5.17.0"}
"""Software of the measurements, as far as traces depend on it; torch was 2.11.0+cu130."""
MEMORY = (Counted.PEAK_ALLOCATED, Counted.PEAK_RESERVED, Counted.DEVICE_USED)


@dataclass(frozen=True)
class Measured:
    """A trial that fitted.

    Attributes:
        fields: Fields of the workload that are not at their defaults.
        bytes: Measured bytes by what is counted; the device used is not known of all.
    """

    name: str
    fields: Mapping[str, Any]
    batch_size: int
    bytes: Mapping[str, int]


@dataclass(frozen=True)
class Compared:
    """A trial with its prediction, in bytes.

    Attributes:
        low, high: The interval of the device memory used.
    """

    name: str
    batch_size: int
    measured: Mapping[str, int]
    predicted: Mapping[str, int]
    low: int
    high: int

    def error(self, counted: str) -> float | None:
        """Predicted over measured, minus 1; ``None`` if it was not measured."""
        measured = self.measured.get(counted)
        return self.predicted[counted] / measured - 1 if measured else None


def read_trials(text: str) -> list[Measured]:
    """The rows of ``h100.csv``."""
    return [_trial(row) for row in csv.DictReader(text.splitlines())]


def _trial(row: Mapping[str, str]) -> Measured:
    return Measured(
        name=f"{row['model']} {row['settings']}".strip(),
        fields={"model": row["model"]} | read_settings(row["settings"]),
        batch_size=int(row["batch_size"]),
        bytes={counted: int(row[counted]) for counted in MEMORY if row[counted]},
    )


def read_settings(text: str) -> dict[str, Any]:
    """The fields of a workload that the flags of ``memorymark measure`` set."""
    words = text.split()
    settings = zip(words[::2], words[1::2], strict=True)
    return {flag.removeprefix("--").replace("-", "_"): _value(word) for flag, word in settings}


def _value(word: str) -> Any:
    return {"true": True, "false": False}.get(word, int(word) if word.isdecimal() else word)


def of_run(results: Results) -> Iterator[Compared]:
    """The trials of a run of ``benchmarks.gpu`` on the whole device that fitted, predicted."""
    for row in results.rows:
        measured, predicted = row.measured, row.predicted
        if row.limit_bytes is None and measured.fits and predicted is not None:
            yield Compared(
                row.workload,
                measured.batch_size,
                {counted: getattr(measured, counted) for counted in MEMORY},
                {counted: getattr(predicted, counted) for counted in MEMORY},
                predicted.device_used_low_bytes or 0,
                predicted.device_used_high_bytes or 0,
            )


def predict(trials: Sequence[Measured]) -> list[Compared]:
    """Predict trials on the catalogue's H100, and the stored run in its file.

    Raises:
        EngineError: If the environment of the measurements cannot be made.
        CalledProcessError: If predicting ends early; it has said why.
    """
    python = python_of_measurements()
    asked = json.dumps([asdict(trial) for trial in trials])
    answer = _run(python, "benchmarks.h100_tracing", given=asked)
    _run(python, "benchmarks.gpu", "predict", os.fspath(RUN))
    return [
        Compared(trial.name, trial.batch_size, trial.bytes, **found)
        for trial, found in zip(trials, json.loads(answer), strict=True)
    ]


def python_of_measurements() -> Path:
    """A Python with the packages of the measurements, as far as traces depend on them.

    Raises:
        EngineError: If its environment cannot be made.
    """
    here = all(metadata.version(package) == number for package, number in SOFTWARE.items())
    return Path(sys.executable) if here else environment_with(SOFTWARE, _say).python


def _run(python: Path, *command: str, given: str = "") -> str:
    done = subprocess.run(
        [os.fspath(python), "-m", *command],
        cwd=ROOT,
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def figures(compared: Sequence[Compared], run: Results) -> dict[str, Any]:
    """The stored numbers of a comparison: errors, intervals, limits and every row."""
    errors = {
        counted: asdict(Errors.of(one.error(counted) for one in compared)) for counted in MEMORY
    }
    return {
        "measured_on": run.runs[-1][0][:10],
        "device": run.device.facts.name,
        "versions": {"torch": run.device.ran_on.torch, "cuda": run.device.ran_on.cuda}
        | {"transformers": run.device.ran_on.transformers, "cudnn": run.device.ran_on.cudnn},
        "errors": errors,
        "interval": interval(compared),
        "limits": [asdict(limit) for limit in limits(run)],
        "rows": [asdict(one) for one in compared],
    }


def interval(compared: Iterable[Compared]) -> dict[str, int]:
    """The number of measurements of device memory used in their interval, and above it."""
    known = [(one, one.measured.get(Counted.DEVICE_USED)) for one in compared]
    used = [(one, measured) for one, measured in known if measured]
    return {
        "measured": len(used),
        "within": sum(one.low <= measured <= one.high for one, measured in used),
        "above": sum(measured > one.high for one, measured in used),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict and compare; print errors or JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h100", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    trials = predict(read_trials(TRIALS.read_text(encoding="utf-8")))
    run = load(RUN)
    found = figures([*trials, *of_run(run)], run)
    if chosen.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    for row in found["rows"]:
        shares = [
            f"{100 * (row['predicted'][counted] / row['measured'][counted] - 1):+7.2f}%"
            if row["measured"].get(counted)
            else "       -"
            for counted in MEMORY
        ]
        sys.stdout.write(f"{' '.join(shares)}  {row['name']}, batch {row['batch_size']}\n")
    for counted, errors in found["errors"].items():
        sys.stdout.write(f"{counted}: {Errors(**errors)}, {errors['compared']} trials\n")
    sys.stdout.write(f"intervals of the device memory used: {found['interval']}\n")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
