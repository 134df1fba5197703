"""Predictions vs. published measurements: ``python -m benchmarks.accuracy``.

Those of ``published.toml`` one by one, and the runs of xMem's evaluation beside what other
estimators said of them (:mod:`benchmarks.xmem`), which takes some minutes. Estimators that can be
installed are run on all of them (:mod:`benchmarks.estimators`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from multiprocessing import get_context
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import estimators, xmem
from benchmarks.published import (
    AIM,
    PUBLISHED,
    Comparison,
    Measurement,
    Summary,
    compare,
    predictor,
    question,
    read_measurements,
    summarize,
)
from engine import __version__
from engine.interface.trial import Source
from engine.prediction.timing.intervals import memory_range


def render(comparisons: Sequence[Comparison]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("measurement", style="cyan")
    table.add_column("GPU")
    table.add_column("counted")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("predicted", justify="right", no_wrap=True)
    table.add_column("error", justify="right", no_wrap=True)
    table.add_column("note", style="dim")
    for comparison in comparisons:
        measurement = comparison.measurement
        growth = "growth of " if measurement.growth_from is not None else ""
        table.add_row(
            measurement.name,
            measurement.gpu.display_name.removeprefix("NVIDIA "),
            f"{growth}{measurement.counted}",
            _value(measurement.published, measurement.unit, measurement.verdict),
            _predicted(comparison),
            _error(comparison),
            Text(comparison.failure or measurement.note),
        )
    return table


def _value(value: float | None, unit: str, otherwise: str) -> str:
    if value is None:
        return otherwise
    return f"{value:,.2f} {unit}" if unit in ("GiB", "GB") else f"{value:,.0f} {unit}"


def _predicted(comparison: Comparison) -> str:
    if comparison.failure:
        return "not predicted"
    value = _value(comparison.predicted, comparison.measurement.unit, "")
    return value if comparison.fits else f"{value}, does not fit"


def _error(comparison: Comparison) -> str:
    if comparison.error is None:
        if comparison.fits is None:
            return "-"
        return "right" if comparison.fits is comparison.measurement.ran else "[red]wrong[/red]"
    within = abs(comparison.error) <= AIM
    style = "green" if within else "yellow" if not comparison.measurement.complete else "red"
    return f"[{style}]{comparison.error:+.1%}[/{style}]"


def format_summary(summary: Summary) -> str:
    lines = []
    if summary.known.compared:
        lines += [
            f"Configuration fully known: {summary.known}; {summary.within_aim} of "
            f"{summary.known.compared} within {AIM:.0%}, {summary.within_range} in the range that "
            f"predictions give ({memory_range()}).",
            f"The same, with nothing added for what older software kept: {summary.plain}.",
        ]
    if summary.every.compared:
        lines.append(f"All {summary.every.compared}: {summary.every}.")
    lines.append(
        f"False safe (predicted to fit, went out of memory): {summary.false_safe} of "
        f"{summary.ran_out}. False alarm (predicted not to fit, ran): {summary.false_alarm} of "
        f"{summary.ran}."
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and print the table or JSON.

    Returns:
        The exit status: 1 if a measurement could not be predicted.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description="Predict published measurements, each converted to what it counted.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--only", default="", help="only measurements with this in their name")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="processes that trace; default: all cores"
    )
    chosen = parser.parse_args(arguments)
    measurements = read_measurements(PUBLISHED.read_text(encoding="utf-8"))
    measurements = [m for m in measurements if chosen.only.lower() in m.name.lower()]
    runs = xmem.read_runs(xmem.RUNS.read_text(encoding="utf-8"))
    runs = [run for run in runs if chosen.only.lower() in run.name.lower()]
    if not (measurements or runs):
        parser.error(f"no measurement has {chosen.only} in its name")
    with comparing(measurements, chosen.jobs) as pending:
        # xMem's runs are traced by a process of their own.
        compared_runs = xmem.compare(runs, _say) if runs else []
        by_name = {one.measurement.name: one for one in pending}
    comparisons = [by_name[measurement.name] for measurement in measurements]
    summary = summarize(comparisons)
    asked = [*map(question, comparisons), *map(xmem.question, compared_runs)]
    said = estimators.ask_all([one for one in asked if one], _say) if runs else []
    if chosen.json:
        found = to_dict(comparisons, summary) | {
            "xmem": xmem.to_dict(compared_runs),
            "estimators": [asdict(one) for one in said],
        }
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        console = Console()
        console.print(render(comparisons))
        console.print(format_summary(summary), highlight=False)
        console.print(xmem.render(compared_runs))
        console.print(estimators.render(said))
        console.print(
            "Measured numbers are as published; predictions are by this engine.", style="dim"
        )
    failures = [one.failure for one in comparisons] + [one.failure for one in compared_runs]
    return 1 if any(failures) else 0


@contextmanager
def comparing(
    measurements: Sequence[Measurement], jobs: int | None = None
) -> Iterator[Iterator[Comparison]]:
    """Compare measurements in ``jobs`` processes, as each trace takes one core; default: all cores.

    They come as they are done. Each has its day and versions, since a result may hold those of
    several days.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        if len(measurements) == 1:
            yield map(_compare, measurements)
        else:
            pending = [pool.submit(_compare, measurement) for measurement in measurements]
            yield (future.result() for future in as_completed(pending))


def _compare(measurement: Measurement) -> Comparison:
    comparison = compare(measurement, _predictor())
    _say(f"{measurement.name}: {_predicted(comparison)}")
    versions = {"memorymark": __version__}
    versions |= {package: metadata.version(package) for package in ("torch", "transformers")}
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return replace(comparison, predicted_on=today, versions=versions)


_predictor = cache(predictor)
"""The predictor of this process, which traces a step once."""


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")


def to_dict(comparisons: Sequence[Comparison], summary: Summary) -> dict[str, Any]:
    """The JSON of the published measurements."""
    return {
        "aim": AIM,
        "published_source": Source.MEASURED,
        "predicted_source": Source.PREDICTED,
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "summary": asdict(summary),
    }


if __name__ == "__main__":
    sys.exit(main())
