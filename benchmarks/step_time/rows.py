"""The published training runs, and the GPUs they ran on."""

from __future__ import annotations

import csv
import hashlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine.gpus import BUILT_IN, Gpu

DATA = Path(__file__).parents[1] / "data"
FITTED, CHECKED = DATA / "step_time.csv", DATA / "step_time_checks.csv"
_OTHER_GPUS = DATA / "step_time_gpus.toml"

OWN = {"h100": "h100", "h100-run": "h100", "h200": "h200", "h200-second": "h200"}
"""The GPU of each source of our own measurements, which has a host of its own: another machine, or
another time of a day on one that others share. Their ``trace`` is the workload's fields as JSON."""

_IN_COLUMNS = {"model", "precision", "optimizer", "config"}

NO_TRACE = {
    "timm:densenet121d",
    "timm:densenet264",
    "timm:densenet264d_iabn",
    "timm:gluon_xception65",
    "timm:regnety_040s_gn",
}
"""Models that timm no longer has."""


@dataclass(frozen=True)
class Row:
    """One published training step; ``benchmarks/data/README.md`` says what each source ran.

    Attributes:
        trace: The model, as :func:`benchmarks.step_time.models.build` takes it.
        size: Pixels of a side, or tokens.
        precision: ``fp32``, ``tf32``, ``fp16-mixed`` or ``bf16-mixed``; or ``fp16``, where the
            model itself is in fp16, and the optimizer has fp32 copies of its parameters.
        kind: Kind of the kernels whose time it is; empty for a whole step.
    """

    source: str
    gpu: str
    trace: str
    size: int
    precision: str
    optimizer: str
    batch: int
    channels_last: bool
    seconds: float
    kind: str = ""

    @property
    def work_name(self) -> str:
        """Names the traced work, which no rate changes."""
        precision = "fp32" if self.precision == "tf32" else self.precision
        layout = "-channels-last" if self.channels_last else ""
        model = self.trace.replace(":", ".")
        if self.source in OWN:
            workload = hashlib.sha256(self.trace.encode()).hexdigest()[:16]
            return f"{self.gpu}-{workload}-{self.batch}"
        return f"{model}-{self.size}-{precision}-{self.optimizer}{layout}"

    @property
    def model(self) -> str:
        """The model's name in its source."""
        return str(json.loads(self.trace)["model"]) if self.source in OWN else self.trace

    @property
    def label(self) -> str:
        """The model with the settings that are not at their defaults."""
        if self.source not in OWN:
            return self.trace
        fields = json.loads(self.trace)
        settings = [f"{name}={value}" for name, value in fields.items() if name not in _IN_COLUMNS]
        return " ".join([fields["model"], *settings])

    @property
    def setup(self) -> tuple[str, ...]:
        """The properties that the batches of one sweep share."""
        return (self.source, self.gpu, self.precision, self.work_name)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file whose model can still be built."""
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in _rows(file) if row.trace not in NO_TRACE]


def _rows(lines: Iterator[str]) -> Iterator[Row]:
    for fields in csv.DictReader(lines):
        yield Row(
            source=fields["source"],
            gpu=fields["gpu"],
            trace=fields["trace"],
            size=int(fields["size"]),
            precision=fields["precision"],
            optimizer=fields["optimizer"],
            batch=int(fields["batch"]),
            channels_last=fields["channels_last"] == "1",
            seconds=float(fields["step_ms"]) / 1e3,
        )


@cache
def gpus() -> dict[str, Gpu]:
    """All GPUs of the rows by name: those of the catalogue, and others."""
    others = tomllib.loads(_OTHER_GPUS.read_text(encoding="utf-8"))
    memory_and_price: dict[str, Any] = {
        "total_bytes": 0,
        "context_bytes": 0,
        "price_per_hour_usd": 0.0,
        "sources": {},
    }
    found = {
        name: Gpu(name=name, display_name=name, **memory_and_price, **fields)
        for name, fields in others.items()
    }
    return {**found, **BUILT_IN}
