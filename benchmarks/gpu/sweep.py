"""``python -m benchmarks.gpu sweep``: steps of many models at a small, a middle and a large batch.

Each trial runs in a process of its own, with the whole device. A row is written as soon as it is
measured, so what is there when time runs out is kept; the models take turns, so that it covers as
many as possible. The last batch of each is run once more under ``torch.profiler``.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.processes import run_trial
from benchmarks.gpu.run import MIN_SECONDS, TRIAL_SECONDS, Budget
from benchmarks.h100 import read_settings
from engine.core.errors import EngineError, MeasurementFailed
from engine.interface.trial import Trial
from engine.interface.workload import Workload
from engine.measurement.parent import OutOfTime, run_together
from engine.measurement.protocol import TrialOrder
from engine.measurement.trial_process import libraries

COLUMNS = (
    "model", "settings", "batch_size", "fits", "peak_allocated_bytes", "peak_reserved_bytes",
    "device_used_bytes", "step_seconds", "step_seconds_low", "step_seconds_high",
)  # fmt: skip
"""The first three are the order, the others fields of a trial."""

_PROFILER = [sys.executable, "-m", "benchmarks.gpu.profiler"]


@dataclass(frozen=True)
class Swept:
    """A workload and its batch sizes, smallest first.

    Attributes:
        settings: Flags of ``memorymark measure``; what is not named has its default.
    """

    model: str
    batch_sizes: tuple[int, ...]
    settings: str = ""

    @property
    def name(self) -> str:
        return f"{self.model} {self.settings}".strip()

    @property
    def fields(self) -> dict[str, Any]:
        return {"model": self.model} | read_settings(self.settings)

    @property
    def workload(self) -> Workload:
        return Workload.parse(self.fields)


_BF16 = "--precision bf16-mixed"
_TF32 = "--precision tf32"
_FP16 = "--precision fp16-mixed"
_LONG = "--precision bf16-true --sequence-length 2048"

SWEEP = (
    Swept("roberta", (8, 32, 128), "--precision fp32"),
    Swept("deberta-v3", (8, 32, 96), _BF16),
    Swept("bart-large", (4, 16, 64), f"{_BF16} --sequence-length 256"),
    Swept("t5-base", (4, 16, 64), f"{_TF32} --sequence-length 256"),
    Swept("whisper", (4, 16, 64), _BF16),
    Swept("wav2vec2", (4, 8, 32), _BF16),
    Swept("swin-t", (16, 64, 256), _BF16),
    Swept("dinov2-base", (8, 32, 128), _TF32),
    Swept("efficientnet-b0", (16, 64, 256), _BF16),
    Swept("resnet-101", (16, 64, 256), f"{_BF16} --optimizer sgd-momentum"),
    Swept("segformer-b0", (4, 16, 64), _BF16),
    Swept("multilingual-e5-base", (16, 64, 256), _BF16),
    Swept("qwen3-1.7b", (1, 2, 8), f"{_LONG} --lora-rank 16 --gradient-checkpointing true"),
    Swept("gemma-3-1b", (1, 2, 4), f"{_LONG} --gradient-checkpointing true"),
    Swept("resnet-18", (32, 128, 512), f"{_BF16} --optimizer sgd-momentum"),
    Swept("clip", (32, 128, 512), _FP16),
    Swept("siglip", (16, 64, 192), _BF16),
    Swept("modernbert-base", (8, 32, 128), f"{_TF32} --sequence-length 256"),
    Swept("vit-l", (8, 32, 96), _BF16),
    Swept("hubert", (2, 8, 24), _TF32),
    Swept("swin-t", (16, 64, 192), "--precision fp32"),
    Swept("llama-3.2-3b", (1, 2, 6), f"{_LONG} --lora-rank 16 --gradient-checkpointing true"),
    Swept("bge-large", (8, 32, 128), _FP16),
    Swept("efficientnet-b0", (16, 64, 192), "--precision fp32 --optimizer rmsprop"),
    Swept("detr", (2, 8, 24), _BF16),
    Swept("distilbert", (16, 64, 256), _BF16),
    Swept("gpt2", (4, 16, 32), "--precision bf16-mixed --gradient-checkpointing true"),
    Swept("flan-t5-large", (2, 8, 24), f"{_BF16} --sequence-length 256"),
    Swept("smollm3-3b", (1, 2, 6), f"{_LONG} --lora-rank 16 --gradient-checkpointing true"),
    Swept("xlm-roberta", (8, 32, 128), f"{_BF16} --sequence-length 256"),
)
"""Models of every family beside those of :data:`~benchmarks.gpu.workloads.FULL`."""


def sweep(
    workloads: Sequence[Swept],
    rows: Path,
    kernels: Path,
    budget: Budget,
    log: Callable[[str], None],
) -> None:
    """Measure every workload at every batch size that the time allows.

    Args:
        workloads: In order of importance.
        rows: Receives a row of :data:`COLUMNS` for each trial.
        kernels: Receives the profiles, as compressed JSON by workload and batch size.
        budget: The time of the whole sweep.
        log: Receives a line for each trial.
    """
    profiles: dict[str, Any] = {}
    with rows.open("w", encoding="utf-8", newline="") as file, libraries.kept():
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for one in workloads:
            for batch_size in one.batch_sizes:
                if budget.left < MIN_SECONDS:
                    return
                try:
                    within = min(TRIAL_SECONDS, budget.left)
                    trial = run_trial(_order(one, batch_size), os.environ, within)
                except (MeasurementFailed, OutOfTime) as error:
                    log(f"{one.name}, batch {batch_size}: {error}")
                    break
                table.writerow(_row(one, trial))
                file.flush()
                log(f"{one.name}, batch {batch_size}: {_told(trial)} ({budget.left:.0f} s left)")
                if not trial.fits:
                    break
            else:
                try:
                    profiles[f"{one.name} @ {one.batch_sizes[-1]}"] = profiled(one, budget.left)
                except EngineError as error:
                    log(f"{one.name}, profile: {error}")
                kernels.write_bytes(gzip.compress(json.dumps(profiles).encode()))


def _order(one: Swept, batch_size: int) -> TrialOrder:
    return TrialOrder(one.workload, batch_size)


def _row(one: Swept, trial: Trial) -> Mapping[str, Any]:
    known = asdict(trial)
    return {"model": one.model, "settings": one.settings} | {
        name: known[name] for name in COLUMNS[2:]
    }


def _told(trial: Trial) -> str:
    if not trial.fits:
        return f"does not fit ({trial.failure})"
    return f"{1000 * (trial.step_seconds or 0):.1f} ms"


def profiled(one: Swept, seconds: float) -> dict[str, Any]:
    """One step of the largest batch under the profiler; see :mod:`benchmarks.gpu.profiler`.

    Raises:
        MeasurementFailed: If it failed.
        OutOfTime: If it took longer than the seconds that are left.
    """
    order = _order(one, one.batch_sizes[-1]).to_json()
    end = run_together(_PROFILER, [order], os.environ, max(min(seconds, TRIAL_SECONDS), 0.0))[0]
    if end.status != 0:
        raise MeasurementFailed(end.last_words or "the profiler ended without a message")
    found: dict[str, Any] = json.loads(end.answer)
    return found


def chosen(only: Sequence[str]) -> Iterator[Swept]:
    """The workloads of these models; all of them without any."""
    return (one for one in SWEEP if not only or one.model in only)
