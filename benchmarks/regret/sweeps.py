"""Sweeps over batch sizes, as they were measured, with what is predicted for each batch.

Ours are of one H100. Others' are the published training steps of one model, GPU, precision and
optimizer at several batch sizes, and Zeus's epochs, in which the loading of data counts. How long
the samples of its BERT were is not published; if they were padded to the longest of a batch, larger
batches had more to do for each sample.
"""

from __future__ import annotations

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from math import log
from pathlib import Path
from statistics import median

from benchmarks.gpu.results import load
from benchmarks.gpu.workloads import BY_NAME
from benchmarks.h100 import ROOT, RUN, TRIALS, read_trials
from benchmarks.step_time.predictions import timed
from benchmarks.step_time.rows import CHECKED, DATA, FITTED, Row, read_rows
from benchmarks.step_time.work import trace_missing
from engine.gpus import GPUS, Gpu
from engine.hub import resolve
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.prediction.probe import predict_step
from engine.prediction.timing.work import StepTime
from engine.traces.trace_files import TraceFiles
from engine.traces.workloads import KeptTraces
from engine.tracing.lowering import behaviour_of

MIN_BATCHES = 2
_TRACES = ROOT / "var" / "regret"
H100 = GPUS["h100"]

_HARDLY_GROWS = 0.5
"""Between its two smallest batches, a step that waits for its host grows by less than this power of
the batch."""

_ZEUS = DATA / "power.csv"
_ZEUS_GPUS = {"a40": "a40", "rtx6000": "rtx-6000", "v100": "v100-pcie"}
"""Zeus's GPUs whose data sheet is known here."""
_ZEUS_STEPS = {
    ("imagenet", "resnet50"): ("timm:resnet50", 224, "adadelta"),
    ("squad", "bert_base_uncased"): ("bert-base-qa", 384, "bert-adam"),
}
"""The traced step of each data set and network."""
_ZEUS_SOURCES = {
    "timm:resnet50": "zeus: ResNet-50, data loading included",
    "bert-base-qa": "zeus: BERT, length of samples unknown",
}
_HAS_TF32 = {"a40"}
"""By PyTorch's defaults of that time, products and convolutions in fp32 ran in TF32 there."""


@dataclass(frozen=True)
class Point:
    """One batch of a sweep.

    Attributes:
        measured: Samples per second, or per epoch: only ratios within a sweep count.
        step: The predicted time of a step, in its parts.
    """

    batch_size: int
    measured: float
    step: StepTime

    @property
    def predicted(self) -> float:
        """Samples per second."""
        return self.batch_size / self.step.seconds


@dataclass(frozen=True)
class Sweep:
    """Several batches of one workload on one GPU, smallest first.

    Attributes:
        source: The people who measured it.
        name: The workload.
    """

    source: str
    name: str
    gpu: str
    points: tuple[Point, ...]

    @property
    def host_bound(self) -> bool:
        """Whether the measured step hardly grows from the smallest batch to the next one.

        It then waits for its host, or for what costs the same at every batch.
        """
        one, other = self.points[:2]
        seconds = [point.batch_size / point.measured for point in (one, other)]
        grown = log(seconds[1] / seconds[0]) / log(other.batch_size / one.batch_size)
        return grown < _HARDLY_GROWS


def all_sweeps() -> list[Sweep]:
    """Every sweep; what was not traced before is traced first, some seconds for each workload."""
    return [*of_h100(), *of_published()]


# Measured by ourselves


def tracing_code() -> str:
    """A hash of what traces depend on: unlike the engine's own, of nothing that predicts times."""
    digest = hashlib.sha256()
    folders = ("models", "parallel", "step", "tracing")
    files = [path for name in folders for path in sorted((ROOT / "engine" / name).rglob("*.*"))]
    files += [ROOT / "engine" / "traces" / f"{name}.py" for name in ("shallow_models", "tracer")]
    for path in files:
        if path.suffix in (".py", ".toml"):
            digest.update(path.name.encode() + path.read_bytes())
    for package in ("torch", "transformers"):
        digest.update(f"{package} {metadata.version(package)}".encode())
    return digest.hexdigest()


def of_h100() -> Iterator[Sweep]:
    """Trials of one H100 without a memory limit, by workload."""
    traces = KeptTraces(files=TraceFiles(_TRACES, code=tracing_code()))
    for workload, speeds in _measured_on_the_h100().items():
        if len(speeds) < MIN_BATCHES:
            continue
        name = ", ".join(filter(None, [workload.preset.display_name, str(workload.precision)]))
        steps = _predicted(workload, H100, sorted(speeds), traces)
        points = (
            Point(size, median(speeds[size]), step)
            for size, step in zip(sorted(speeds), steps, strict=True)
        )
        yield Sweep("our own, H100", name, H100.name, tuple(points))


def _measured_on_the_h100() -> dict[Workload, dict[int, list[float]]]:
    """Samples per second by workload and batch size; some were measured twice."""
    found: dict[Workload, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(TRIALS.read_text(encoding="utf-8").splitlines()):
        if row["step_seconds"]:
            trial = read_trials(_as_file(row))[0]
            workload = resolve(Workload.parse(trial.fields))
            found[workload][trial.batch_size].append(trial.batch_size / float(row["step_seconds"]))
    for one in load(RUN).rows:
        seconds = one.measured.step_seconds
        if one.limit_bytes is None and seconds:
            workload = resolve(BY_NAME[one.workload].workload)
            found[workload][one.measured.batch_size].append(one.measured.batch_size / seconds)
    return found


def _as_file(row: Mapping[str, str]) -> str:
    return f"{','.join(row)}\n{','.join(row.values())}\n"


def _predicted(
    workload: Workload, gpu: Gpu, batch_sizes: Iterable[int], traces: KeptTraces
) -> Iterator[StepTime]:
    request = AnalysisRequest(workload, gpu=gpu.name)
    of_gpu = traces.of(request, behaviour_of(gpu), lambda _: None)
    for size in batch_sizes:
        yield predict_step(request.workload_at(size), gpu, of_gpu.at(size))


# Published


def of_published() -> Iterator[Sweep]:
    """Published training steps that differ in nothing but the batch."""
    setups: dict[tuple[str, ...], dict[int, Row]] = defaultdict(dict)
    zeus = list(read_zeus(_ZEUS))
    for row in [*read_rows(FITTED), *(r for r in read_rows(CHECKED) if r.source != "zeus"), *zeus]:
        setups[row.setup][row.batch] = row
    several = [rows for rows in setups.values() if len(rows) >= MIN_BATCHES]
    trace_missing(row for rows in several for row in rows.values())
    for rows in several:
        points = (
            Point(size, size / rows[size].seconds, timed(rows[size])) for size in sorted(rows)
        )
        row = next(iter(rows.values()))
        name = ", ".join([row.trace, row.precision])
        yield Sweep(row.source, name, row.gpu, tuple(points))


def read_zeus(path: Path) -> Iterator[Row]:
    """Zeus's epochs of ResNet-50 on ImageNet and of BERT on SQuAD, as steps.

    Their seconds are those of an epoch times the batch: right but for a factor of each data set.
    """
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            step = _ZEUS_STEPS.get((row["dataset"], row["network"]))
            if step is None or row["gpu"] not in _ZEUS_GPUS:
                continue
            trace, size, optimizer = step
            batch = int(row["batch_size"])
            yield Row(
                source=_ZEUS_SOURCES[trace],
                gpu=_ZEUS_GPUS[row["gpu"]],
                trace=trace,
                size=size,
                precision="tf32" if row["gpu"] in _HAS_TF32 else "fp32",
                optimizer=optimizer,
                batch=batch,
                channels_last=False,
                seconds=float(row["epoch_seconds"]) * batch,
            )
