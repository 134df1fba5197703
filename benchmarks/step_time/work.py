"""The work of published steps: traced once, kept in ``var/step_time``.

Tracing needs timm, so it runs in an environment of its own, made the first time. It takes some two
seconds a row on one core, half an hour in all.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.step_time.rows import OWN, Row
from benchmarks.torchvision_here import DECLARED
from engine.prediction.timing.kernels import ATTENTIONS, Kind, kind_of
from engine.tracing.trace import Operation
from engine.versions.environments import create

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "var" / "step_time"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")

LOW, HIGH = 2, 3
"""The two batch sizes that are traced; they give all others."""

_GROUPS = {
    "ELEMENTS": (Kind.COPY, Kind.ELEMENTWISE, Kind.UNROLLED, Kind.TRANSPOSE),
    "ATTENTION": ATTENTIONS,
}
"""Kinds that a profile by operator does not tell apart: it does not say how tensors lie in memory,
and a trace may have another of the kernels of attention."""

FORWARD = "forward"
"""In place of an optimizer: images go forward through a model that is evaluated."""

_MAX_SECONDS = 3 * 3600


def trace_missing(rows: Iterable[Row]) -> None:
    """Trace the work of rows that is not there yet; what fails is reported and left out."""
    jobs = {
        row.work_name: {
            "trace": row.trace,
            "size": row.size,
            "precision": "fp32" if row.precision == "tf32" else row.precision,
            "optimizer": row.optimizer,
            "channels_last": row.channels_last,
            "file": str(file_of(row.work_name)),
        }
        for row in rows
        if not file_of(row.work_name).exists()
    }
    if not jobs:
        return
    sys.stderr.write(f"Tracing {len(jobs):,} steps ...\n")
    file_of("").parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [str(_environment()), "-m", "benchmarks.step_time.tracing"],
        input="".join(json.dumps(job) + "\n" for job in jobs.values()),
        text=True,
        cwd=ROOT,
        timeout=_MAX_SECONDS,
        check=True,
    )


def is_traced(row: Row) -> bool:
    return file_of(row.work_name).exists()


@cache
def _work(name: str) -> Sequence[Any]:
    document = json.loads(gzip.decompress(file_of(name).read_bytes()))
    operations: Sequence[Any] = document["operations"]
    return operations


def operations_of(row: Row) -> list[tuple[Operation, int]]:
    """The operations of a row's step, or those of its kind, and how often each runs.

    Those of one part of a phase stand together, the one that the host waits at first.
    """
    found = [
        (
            Operation(
                name, dtype, 0, 0, phase, (0,) * (len(low) - 2), layout, unrolled, waits
            ).with_numbers(
                tuple(a + (b - a) * (row.batch - LOW) for a, b in zip(low, high, strict=True))
            ),
            times,
        )
        for name, dtype, phase, layout, unrolled, waits, times, low, high in _work(row.work_name)
    ]
    return [one for one in found if not row.kind or group_of(kind_of(one[0])) == row.kind]


def group_of(kind: Kind) -> str:
    """The group of a kind of kernel: those that a profile can tell from others."""
    return next((name for name, kinds in _GROUPS.items() if kind in kinds), kind.name)


def architecture(row: Row) -> str:
    """The same for models that multiply the same matrices, whatever they are called.

    Rows of one architecture are fitted together or held out together. Of our own steps, which are
    traced at several batch sizes, those of one model are.
    """
    return row.model if row.source in OWN else _products(row.work_name)


@cache
def _products(name: str) -> str:
    return "\n".join(
        sorted(
            f"{operation} {low[2:]} {times}"
            for operation, _, phase, _, _, _, times, low, _ in _work(name)
            if phase == "forward" and len(low) > 3  # a batch norm multiplies nothing
        )
    )


def file_of(name: str) -> Path:
    """The file of the operations of :attr:`~benchmarks.step_time.rows.Row.work_name`."""
    return FOLDER / "work" / f"{name}.json.gz"


def _environment() -> Path:
    """The interpreter of an environment with timm, made unless it was before."""
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    made_with = FOLDER / REQUIREMENTS.name
    python = FOLDER / "venv" / "bin" / "python"
    if not (made_with.is_file() and made_with.read_text(encoding="utf-8") == wanted):
        sys.stderr.write(f"Making {FOLDER} ...\n")
        # The list is complete: pip must not look for another torch.
        create(python.parents[1], "--no-deps", "--requirement", str(REQUIREMENTS))
        (packages,) = python.parents[1].glob("lib/python3*/site-packages")
        (packages / "torchvision.pth").write_text(DECLARED, encoding="utf-8")
        made_with.write_text(wanted, encoding="utf-8")
    return python
