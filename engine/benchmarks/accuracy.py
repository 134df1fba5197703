"""The predictor against published measurements: ``python -m engine.benchmarks.accuracy``."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.errors import EngineError
from engine.gpus import GPUS
from engine.result import GpuFacts, Source, Trial
from engine.workload import Workload

PUBLISHED = Path(__file__).with_name("published.toml")

AIM = 0.03
"""The error to stay within where the configuration is fully known."""

COUNTED = {
    "peak allocated": "peak_allocated_bytes",
    "peak reserved": "peak_reserved_bytes",
    "device used": "device_used_bytes",
}
"""What a measurement counts, and the figure of a trial that counts the same."""

UNITS = {"GiB": 2**30, "MiB": 2**20, "GB": 10**9, "B": 1}


@dataclass(frozen=True)
class Place:
    """A GPU as far as memory goes: of the catalogue, or only of the published measurements."""

    display_name: str
    total_bytes: int
    context_bytes: int
    compute_capability: float


@dataclass(frozen=True)
class Measurement:
    """One published figure; ``published.toml`` says what each field means."""

    name: str
    source: str
    gpu: Place
    workload: dict[str, Any]
    batch_size: int
    counted: str
    unit: str
    complete: bool
    published: float | None = None
    ran: bool = True
    context_bytes: int | None = None
    kept_bytes: int = 0
    growth_from: int | None = None
    forward_only: bool = False
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """A published figure with the predicted one.

    Attributes:
        predicted: In the measurement's unit; ``None`` where nothing could be predicted.
        error: Predicted over published, less one; ``None`` where one of them is missing.
        fits: Whether it was predicted to fit; ``None`` where nothing could be predicted.
        failure: Why nothing could be predicted, in words.
    """

    measurement: Measurement
    predicted: float | None = None
    error: float | None = None
    fits: bool | None = None
    failure: str = ""

    @property
    def plain_error(self) -> float | None:
        """The error without the bytes added for what older software kept."""
        published = self.measurement.published
        if self.error is None or published is None or self.measurement.growth_from is not None:
            return self.error
        kept = self.measurement.kept_bytes / UNITS[self.measurement.unit]
        return self.error - kept / published


@dataclass(frozen=True)
class Summary:
    """What all comparisons say together.

    Attributes:
        median_error, worst_error: Of the absolute errors where the configuration is fully known,
            as shares; ``None`` where there is none.
        compared: How many those are.
        within_aim: How many of them stay within :data:`AIM`.
        plain_median_error, plain_worst_error: Of the same, with nothing added to the predictions
            for what older software kept.
        median_error_all, worst_error_all: Of all of them.
        compared_all: How many those are.
        ran_out: How many published runs went out of memory.
        false_safe: How many of those were predicted to fit.
        ran: How many published runs did fit.
        false_alarm: How many of those were predicted not to.
    """

    median_error: float | None
    worst_error: float | None
    compared: int
    within_aim: int
    plain_median_error: float | None
    plain_worst_error: float | None
    median_error_all: float | None
    worst_error_all: float | None
    compared_all: int
    ran_out: int
    false_safe: int
    ran: int
    false_alarm: int


Predict = Callable[[Measurement, int], Trial]
"""Predicts a measurement's workload at a batch size."""


def read_measurements(text: str) -> list[Measurement]:
    """Read measurements in the form of ``published.toml``.

    Raises:
        ValueError: If one lacks a field, has an unknown one, or names an unknown GPU, unit or kind
            of figure.
    """
    read = tomllib.loads(text)
    places = {name: Place(**table) for name, table in read.get("gpus", {}).items()}
    for gpu in GPUS.values():
        places[gpu.name] = Place(
            gpu.display_name, gpu.total_bytes, gpu.context_bytes, gpu.compute_capability
        )
    return [_measurement(table, places) for table in read["measurement"]]


def _measurement(table: dict[str, Any], places: dict[str, Place]) -> Measurement:
    name = table.get("name", "one without a name")
    known = {field.name for field in fields(Measurement)}
    needed = {field.name for field in fields(Measurement) if field.default is MISSING}
    if odd := (table.keys() - known) | (needed - table.keys()):
        raise ValueError(f"measurement {name}: unknown or missing {', '.join(sorted(odd))}")
    for key, words in (("gpu", places), ("unit", UNITS), ("counted", COUNTED)):
        if table[key] not in words:
            raise ValueError(f"measurement {name}: unknown {key} {table[key]}")
    measurement = Measurement(**table | {"gpu": places[table["gpu"]]})
    if measurement.ran is (measurement.published is None):
        raise ValueError(f"measurement {name}: a figure is published if and only if it ran")
    return measurement


def compare(measurement: Measurement, predict: Predict) -> Comparison:
    """Predict a measurement and convert the prediction to what was counted."""
    try:
        trial = predict(measurement, measurement.batch_size)
        counted = _counted(trial, measurement)
        if measurement.growth_from is not None:
            counted -= _counted(predict(measurement, measurement.growth_from), measurement)
    except EngineError as refused:
        return Comparison(measurement, failure=str(refused))
    except Exception as broken:
        # A fault of the engine; it is shown in its row, and the others are still compared.
        return Comparison(measurement, failure=f"the engine failed: {broken!r}")
    predicted = counted / UNITS[measurement.unit]
    error = None if measurement.published is None else predicted / measurement.published - 1
    return Comparison(measurement, predicted, error, trial.fits)


def _counted(trial: Trial, measurement: Measurement) -> int:
    figure: int | None = getattr(trial, COUNTED[measurement.counted])
    if figure is None:
        raise ValueError(f"nothing was predicted for the {measurement.counted}")
    return figure + measurement.kept_bytes


def predictor() -> Predict:
    """Predicts measurements by tracing them; each step is traced once."""
    # torch takes seconds to load; --help and mistakes in the file must not wait for it.
    from engine.prediction.probe import predict_memory
    from engine.tracing.lowering import cuda_behaviour
    from engine.tracing.trace import Trace
    from engine.tracing.tracer import trace

    @cache
    def traced(fields: str, batch_size: int, capability: float, forward_only: bool) -> Trace:
        workload = Workload.parse(json.loads(fields))
        behaviour = cuda_behaviour(capability)
        return trace(workload, batch_size, behaviour, forward_only=forward_only)

    def predict(measurement: Measurement, batch_size: int) -> Trial:
        place = measurement.gpu
        context = measurement.context_bytes or place.context_bytes
        fields = json.dumps(measurement.workload)
        step = traced(fields, batch_size, place.compute_capability, measurement.forward_only)
        usable = place.total_bytes - context
        return predict_memory(GpuFacts(place.display_name, place.total_bytes, usable), step)

    return predict


def summarise(comparisons: Sequence[Comparison]) -> Summary:
    """Errors and wrong verdicts of all comparisons together."""
    known = [c for c in comparisons if c.measurement.complete]
    errors = _absolute(c.error for c in known)
    plain = _absolute(c.plain_error for c in known)
    errors_all = _absolute(c.error for c in comparisons)
    ran_out = [c for c in comparisons if not c.measurement.ran and c.fits is not None]
    ran = [c for c in comparisons if c.measurement.ran and c.fits is not None]
    return Summary(
        median_error=statistics.median(errors) if errors else None,
        worst_error=max(errors, default=None),
        compared=len(errors),
        within_aim=sum(error <= AIM for error in errors),
        plain_median_error=statistics.median(plain) if plain else None,
        plain_worst_error=max(plain, default=None),
        median_error_all=statistics.median(errors_all) if errors_all else None,
        worst_error_all=max(errors_all, default=None),
        compared_all=len(errors_all),
        ran_out=len(ran_out),
        false_safe=sum(c.fits is True for c in ran_out),
        ran=len(ran),
        false_alarm=sum(c.fits is False for c in ran),
    )


def _absolute(errors: Iterable[float | None]) -> list[float]:
    return [abs(error) for error in errors if error is not None]


def render(comparisons: Sequence[Comparison]) -> Table:
    """The comparisons as a table, one row each."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("measurement", style="cyan")
    table.add_column("GPU")
    table.add_column("counted")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("predicted", justify="right", no_wrap=True)
    table.add_column("error", justify="right", no_wrap=True)
    table.add_column("to know", style="dim")
    for comparison in comparisons:
        measurement = comparison.measurement
        growth = "growth of " if measurement.growth_from is not None else ""
        table.add_row(
            measurement.name,
            measurement.gpu.display_name.removeprefix("NVIDIA "),
            f"{growth}{measurement.counted}",
            _figure(measurement.published, measurement.unit, "out of memory"),
            _predicted(comparison),
            _error(comparison),
            Text(comparison.failure or measurement.note),
        )
    return table


def _figure(value: float | None, unit: str, otherwise: str) -> str:
    if value is None:
        return otherwise
    return f"{value:,.2f} {unit}" if unit in ("GiB", "GB") else f"{value:,.0f} {unit}"


def _predicted(comparison: Comparison) -> str:
    if comparison.failure:
        return "not predicted"
    figure = _figure(comparison.predicted, comparison.measurement.unit, "")
    return figure if comparison.fits else f"{figure}, does not fit"


def _error(comparison: Comparison) -> str:
    if comparison.error is None:
        if comparison.fits is None:
            return "-"
        return "right" if comparison.fits is comparison.measurement.ran else "[red]wrong[/red]"
    within = abs(comparison.error) <= AIM
    style = "green" if within else "yellow" if not comparison.measurement.complete else "red"
    return f"[{style}]{comparison.error:+.1%}[/{style}]"


def in_words(summary: Summary) -> str:
    """The summary as a few lines for a person."""
    lines = []
    if summary.median_error is not None:
        lines.append(
            f"Configuration fully known: median error {summary.median_error:.1%}, worst "
            f"{summary.worst_error:.1%}; {summary.within_aim} of {summary.compared} within "
            f"{AIM:.0%}."
        )
    if summary.plain_median_error is not None:
        lines.append(
            "The same, with nothing added for what older software kept: median "
            f"{summary.plain_median_error:.1%}, worst {summary.plain_worst_error:.1%}."
        )
    if summary.median_error_all is not None:
        lines.append(
            f"All {summary.compared_all}: median error {summary.median_error_all:.1%}, worst "
            f"{summary.worst_error_all:.1%}."
        )
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
        prog="python -m engine.benchmarks.accuracy",
        description="Predict published measurements, each converted to what it counted.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--only", default="", help="only measurements with this in their name")
    chosen = parser.parse_args(arguments)
    measurements = read_measurements(PUBLISHED.read_text(encoding="utf-8"))
    measurements = [m for m in measurements if chosen.only.lower() in m.name.lower()]
    if not measurements:
        parser.error(f"no measurement has {chosen.only} in its name")
    predict = predictor()
    comparisons = [compare(measurement, predict) for measurement in measurements]
    summary = summarise(comparisons)
    if chosen.json:
        sys.stdout.write(json.dumps(_to_dict(comparisons, summary), indent=2) + "\n")
    else:
        console = Console()
        console.print(render(comparisons))
        console.print(in_words(summary), highlight=False)
        console.print("Measured figures as published, predicted ones by this engine.", style="dim")
    return 1 if any(comparison.failure for comparison in comparisons) else 0


def _to_dict(comparisons: Sequence[Comparison], summary: Summary) -> dict[str, Any]:
    return {
        "aim": AIM,
        "published_source": Source.MEASURED,
        "predicted_source": Source.PREDICTED,
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "summary": asdict(summary),
    }


if __name__ == "__main__":
    sys.exit(main())
