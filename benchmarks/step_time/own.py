"""The steps and kernels that we measured ourselves on an H100 and two H200, as rows to fit on.

The steps are those of :mod:`benchmarks.h100` and :mod:`benchmarks.h200`; the kernels of 33 of them
are in ``benchmarks/data/h100_kernels.json.gz`` and ``h200_kernels.json.gz``, by operator and
shapes, as ``torch.profiler`` found them.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.calibration import fields_of
from benchmarks.gpu.results import load
from benchmarks.h100 import ROOT, RUN, TRIALS, python_of_measurements, read_settings
from benchmarks.step_time.rows import DATA, OWN, Row
from benchmarks.step_time.work import file_of, group_of, is_traced
from engine.prediction.timing.kernels import Kind, kind_of
from engine.tracing.trace import Operation

H200_TRIALS = DATA / "h200.csv"
H100, OF_RUN, H200, SECOND_H200 = OWN
KERNELS = {H100: DATA / "h100_kernels.json.gz", H200: DATA / "h200_kernels.json.gz"}
"""Profiles of steps, by the source of their rows; a host has no part in them."""
_LAST_OF_FIRST_H200 = "resnet-101"
"""The rows of the first machine end with it (``benchmarks/data/README.md``)."""
_MIN_SHARE = 0.05
"""Kinds that take less of a step's time on the GPU decide nothing."""
_AT_ANY_BATCH = Kind.MULTI_TENSOR.name
"""An optimizer's share is small in the large batches that are profiled, and larger in others."""
_UNLIKE = ("GROUPED", "ODD_GROUPED", "DEPTHWISE", "LONG")
"""Convolutions whose speed depends on more than their kind: over the 128 taps of wav2vec 2.0, the
forward pass ran at a sixth of HuBERT's rate."""
_OPERATOR, _FROM_HOST = "aten::", "HtoD"
_CONVOLUTION, _OWN_DEPTHWISE = "convolution", "_conv_depthwise"
_BACKWARD = "backward"


def own_rows() -> list[Row]:
    """All rows: of whole steps, and of the kernels of one kind in a step."""
    return [*_steps(H100, TRIALS), *_steps_of_the_run(), *_steps_of_h200(), *_kernels()]


def trace_missing_own(rows: Sequence[Row]) -> None:
    """Trace the steps that are not traced yet, with the packages of the measurements.

    Raises:
        EngineError: If their environment cannot be made.
        CalledProcessError: If tracing ends early; it has said why.
    """
    missing = {row.work_name: row for row in rows if not is_traced(row)}
    jobs = [
        {
            "gpu": row.gpu,
            "fields": json.loads(row.trace),
            "batch": row.batch,
            "file": str(file_of(row.work_name)),
        }
        for row in sorted(missing.values(), key=lambda row: (row.gpu, row.trace))
    ]
    if not jobs:
        return
    sys.stderr.write(f"Tracing {len(jobs):,} steps of our own ...\n")
    file_of("").parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [str(python_of_measurements()), "-m", "benchmarks.step_time.own_tracing"],
        input="".join(json.dumps(job) + "\n" for job in jobs),
        text=True,
        cwd=ROOT,
        check=True,
    )


def _steps(source: str, trials: Path) -> Iterator[Row]:
    with trials.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["step_seconds"]:
                fields = {"model": row["model"]} | read_settings(row["settings"])
                yield _row(source, fields, int(row["batch_size"]), float(row["step_seconds"]))


def _steps_of_h200() -> Iterator[Row]:
    rows = [*_steps(H200, H200_TRIALS)]
    last = max(place for place, row in enumerate(rows) if row.model == _LAST_OF_FIRST_H200)
    yield from rows[: last + 1]
    yield from (replace(row, source=SECOND_H200) for row in rows[last + 1 :])


def _steps_of_the_run() -> Iterator[Row]:
    for row in load(RUN).rows:
        measured = row.measured
        if row.limit_bytes is None and measured.fits and measured.step_seconds:
            fields = fields_of(row.workload)
            yield _row(OF_RUN, fields, measured.batch_size, measured.step_seconds)


def _kernels() -> Iterator[Row]:
    for source, file in KERNELS.items():
        for name, step in json.loads(gzip.decompress(file.read_bytes())).items():
            yield from _kernels_of(source, name, step)


def _kernels_of(source: str, name: str, step: Mapping[str, Any]) -> Iterator[Row]:
    settings, _, batch = name.partition(" @ ")
    model, _, settings = settings.partition(" ")
    fields = {"model": model} | read_settings(settings)
    found = seconds_by_group(step["rows"])
    least = _MIN_SHARE * math.fsum(found.values())
    for group, seconds in found.items():
        decides = seconds > least or group == _AT_ANY_BATCH
        if decides and not group.startswith(_UNLIKE):
            yield _row(source, fields, int(batch), seconds, group)


def _row(source: str, fields: Mapping[str, Any], batch: int, seconds: float, kind: str = "") -> Row:
    return Row(
        source=source,
        gpu=OWN[source],
        trace=json.dumps(fields, sort_keys=True),
        size=0,
        precision=fields.get("precision", "fp32"),
        optimizer=fields.get("optimizer", ""),
        batch=batch,
        channels_last=False,
        seconds=seconds,
        kind=kind,
    )


def seconds_by_group(rows: Sequence[tuple[str, Any, int, float]]) -> dict[str, float]:
    """Time of the kernels of each group, from a profile's rows: name, shapes, count, microseconds.

    Copies from the host are no kernels.
    """
    found: dict[str, float] = defaultdict(float)
    for name, shapes, _, microseconds in rows:
        if name.startswith(_OPERATOR):
            kind = _kind(name.removeprefix(_OPERATOR), shapes)
            found[group_of(kind)] += microseconds / 1e6
        elif _FROM_HOST in name:
            found[group_of(Kind.COPY)] -= microseconds / 1e6
    return dict(found)


def _kind(name: str, shapes: str) -> Kind:
    phase = _BACKWARD if _BACKWARD in name else "forward"
    if name.startswith(("_fused_", "_foreach_", "_amp_foreach_")):
        phase = "optimizer"
    if not name.startswith(_OWN_DEPTHWISE) and _CONVOLUTION not in name:
        # PyTorch's own batch norm is told by its number format in a trace, here by its name.
        dtype = "bfloat16" if name.startswith("native_batch_norm") else "float32"
        return kind_of(Operation(f"aten.{name}", dtype, 0, 0, phase))
    images, weight = json.loads(shapes)[phase == _BACKWARD :][:2]
    shape = (1, weight[0], weight[1], math.prod(weight[2:]), images[1] // weight[1], 0)
    suffix = "_backward" if phase == _BACKWARD else ""
    return kind_of(Operation(f"aten.convolution{suffix}", "float32", 0, 0, phase, shape))
