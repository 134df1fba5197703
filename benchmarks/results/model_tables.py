"""Tables of the largest batch of many models, and of the memory of compiled ones."""

from __future__ import annotations

from typing import Any

from benchmarks.largest import GPU_NAMES, SETTINGS
from benchmarks.results.cells import Read, table
from engine.gpus import GPUS
from engine.models.presets import PRESETS


def largest(read: Read) -> str:
    """A row for each model, with its largest batch by setting and GPU, or why it has none."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for row in read("largest").figures["rows"]:
        rows.setdefault(row["model"], {})[row["setting"]] = row
    gpus = [GPUS[name].display_name.removeprefix("NVIDIA ") for name in GPU_NAMES]
    return table(
        ["model", "a sample", *(f"{setting}: {gpu}" for setting in SETTINGS for gpu in gpus)],
        [
            [
                PRESETS[model].display_name,
                next(row["sample"] for row in by_setting.values() if row["sample"]),
                *(cell for setting in SETTINGS for cell in _batch_sizes(by_setting[setting])),
            ]
            for model, by_setting in rows.items()
        ],
    )


def _batch_sizes(row: dict[str, Any]) -> list[str]:
    sizes = [row["batch_sizes"].get(name) for name in GPU_NAMES]
    return ["–" if size is None else f"{size:,}" for size in sizes]


def compiled(read: Read) -> str:
    """A row for each model and batch: compiled steps planned and run, in MiB."""
    return table(
        ["model", "batch", "not compiled, run", "compiled, run", "planned", "planned for an A100"],
        [
            [
                one["model"],
                str(one["batch_size"]),
                *(
                    f"{one[name] / 2**20:,.2f} MiB"
                    for name in (
                        "eager_bytes",
                        "measured_bytes",
                        "planned_bytes",
                        "planned_cuda_bytes",
                    )
                ),
            ]
            for one in read("compiled").figures["comparisons"]
        ],
    )
