"""The largest batch of forty presets on three GPUs: ``python -m benchmarks.largest``."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache

from rich import box
from rich.console import Console
from rich.table import Table

from engine.core.errors import EngineError
from engine.gpus import GPUS
from engine.interface.request import FIELDS, AnalysisRequest
from engine.interface.workload import Workload
from engine.models.presets import PRESETS
from engine.models.tasks import SIZES

SETTINGS: dict[str, dict[str, object]] = {
    "full": {"precision": "bf16-mixed"},
    "lora": {"precision": "bf16-true", "lora_rank": 16, "gradient_checkpointing": True},
}
"""All parameters with AdamW; and LoRA on all linear layers, with gradient checkpointing."""

MOST_TRAINED = [
    "bert",
    "bert-large",
    "roberta",
    "distilbert",
    "deberta-v3",
    "deberta-v3-large",
    "modernbert-base",
    "xlm-roberta",
    "bge-base",
    "gpt2",
    "llama-3.2-1b",
    "llama-3.2-3b",
    "llama-3.1-8b",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-4b",
    "qwen3-8b",
    "qwen2.5-7b",
    "gemma-2b",
    "gemma-3-1b",
    "mistral-7b",
    "smollm3-3b",
    "olmo-2-7b",
    "t5-small",
    "t5-base",
    "flan-t5-large",
    "bart-large",
    "resnet",
    "resnet-18",
    "vit-b",
    "vit-l",
    "dinov2-base",
    "convnext-t",
    "swin-t",
    "efficientnet-b0",
    "segformer-b0",
    "clip",
    "siglip",
    "whisper",
    "wav2vec2",
]
"""Forty of the presets, of every kind: our choice, not counted anywhere."""

GPU_NAMES = ("rtx-4090", "h100", "h200")
"""GPUs with 24, 80 and 141 GB."""


@dataclass(frozen=True)
class Largest:
    """A preset's largest batch.

    Attributes:
        setting: One of :data:`SETTINGS`.
        sample: The sizes of a sample, such as ``128 tokens``.
        batch_sizes: Largest that is predicted to fit, by GPU; 0 where none does.
        seconds: Time for all three GPUs.
        why_not: Why the model is not trained so; else empty.
    """

    model: str
    setting: str
    sample: str
    batch_sizes: dict[str, int]
    seconds: float
    why_not: str = ""


def find(model: str, setting: str) -> Largest:
    """The largest batches of a preset, predicted for GPUs that are used whole."""
    begin = time.perf_counter()
    try:
        workload = Workload.parse({"model": model, **SETTINGS[setting]})
        found = _on_every_gpu(workload)
    except EngineError as error:
        said = str(error)
        return Largest(model, setting, "", {}, time.perf_counter() - begin, said)
    return Largest(model, setting, _sample(workload), found, time.perf_counter() - begin)


def _find(task: tuple[str, str]) -> Largest:
    return find(*task)


def _on_every_gpu(workload: Workload) -> dict[str, int]:
    # torch takes seconds to load; --help must not wait for it.
    from engine.prediction.limits import find_limits
    from engine.prediction.predicted_analysis import ModelPrediction
    from engine.traces.batch_rule import BatchRule, trace_every_batch_size
    from engine.tracing.lowering import cuda_behaviour

    @cache
    def traces(capability: float) -> BatchRule:
        return trace_every_batch_size(workload, cuda_behaviour(capability))

    def largest(name: str) -> int:
        gpu = GPUS[name]
        of_gpu = traces(gpu.compute_capability)
        request = AnalysisRequest(workload, gpu=name)
        prediction = ModelPrediction(request, gpu, of_gpu)
        return find_limits(prediction).outcome.largest_batch_size

    return {name: largest(name) for name in GPU_NAMES}


def _sample(workload: Workload) -> str:
    sizes = {name: getattr(workload, name) for name in SIZES}
    units = {name: FIELDS[name].described.unit for name in SIZES}
    return ", ".join(f"{size:,} {units[name]}" for name, size in sizes.items() if size)


def render(rows: Sequence[Largest]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", style="cyan")
    table.add_column("setting")
    table.add_column("sample")
    for name in (*GPU_NAMES, "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        sizes = [f"{size:,}" if size else "none" for size in row.batch_sizes.values()]
        cells = sizes or [row.why_not, "", ""]
        table.add_row(row.model, row.setting, row.sample, *cells, f"{row.seconds:.1f}")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.largest", description=__doc__)
    parser.add_argument("models", nargs="*", help="presets; by default forty of them")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.models if name not in PRESETS]:
        parser.error(f"no preset is called {', '.join(unknown)}")
    tasks = [(model, setting) for model in chosen.models or MOST_TRAINED for setting in SETTINGS]
    context = multiprocessing.get_context("spawn")
    with context.Pool(chosen.processes, maxtasksperchild=8) as pool:
        rows = []
        for row in pool.imap(_find, tasks):
            rows.append(row)
            sys.stderr.write(f"{row.model}, {row.setting}: {row.seconds:.0f} s\n")
    if chosen.json:
        sys.stdout.write(json.dumps({"rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    else:
        Console().print(render(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
