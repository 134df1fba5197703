"""The question of an analysis in words: its settings as a list, and as a command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from analyses.formatting import exact, gib_with_unit, plain_number, usd, whole
from analyses.models import Analysis
from engine.errors import InvalidInput
from engine.gpus import GPUS, LOCAL
from engine.models.kinds import Kind, Model
from engine.models.presets import PRESETS, find_model
from engine.request import AnalysisRequest
from engine.workload import OWN_CONFIG, Workload

Request = Mapping[str, Any]
"""The stored fields of a request; one of an older version lacks some."""

DEFAULTS: dict[str, Any] = {
    field.name: field.default
    for field in (*fields(AnalysisRequest), *fields(Workload))
    if field.default is not MISSING
}
"""What the engine takes for a field that is not given."""


def settings_of(
    request: Request, assumed_by: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """The question as label and value, in the order of the form; rare ones only where changed.

    Args:
        request: Of a stored analysis.
        assumed_by: Whose assumptions are not the asker's own, as the analysis has it; where it is
            not given, nothing is said of that.
    """
    preset = PRESETS.get(request["model"])
    limit = request.get("memory_limit_bytes")
    task = request.get("task") or (preset.task if preset else "")
    rare = _changed(request)
    rows = [
        ("Model", model_name(request["model"])),
        ("Hub id", preset.hub_id if preset else ""),
        ("Architecture", _architecture(request)),
        ("Task", task.replace("-", " ")),
        ("Labels", rare.get("label_count", "")),
        ("GPU", gpu_name(request["gpu"])),
        ("Memory limit", gib_with_unit(limit) if limit else ""),
        ("Allocator", rare.get("allocator", "")),
        ("Precision", request["precision"]),
        ("Optimizer", request["optimizer"]),
        ("Mode", request["mode"]),
        ("Sequence length", _tokens(request)),
        ("Image size", _pixels(request)),
        ("Attention", rare.get("attention", "")),
        ("Gradient checkpointing", rare.get("gradient_checkpointing", "")),
        ("Backbone", "frozen" if "frozen_backbone" in rare else ""),
        ("LoRA rank", rare.get("lora_rank", "")),
        ("LoRA targets", rare.get("lora_targets", "")),
        (
            "Gradient accumulation",
            _with_unit(rare.get("gradient_accumulation"), "micro-batches a step"),
        ),
        ("torch.compile", rare.get("compile", "")),
        ("Parallelism", _parallelism(rare)),
        ("Current batch", _with_unit(request["current_batch_size"], "samples")),
        ("Batch multiple", whole(request["batch_multiple"])),
        ("Global batch to keep", _with_unit(request.get("global_batch_size"), "samples")),
        *_assumed(request, assumed_by or {}),
    ]
    return [(label, value) for label, value in rows if value]


def _assumed(request: Request, assumed_by: Mapping[str, str]) -> list[tuple[str, str]]:
    price = request.get("price_per_hour_usd")
    values = {
        "hours_per_run": ("Hours per run (assumed)", exact(request["hours_per_run"])),
        "runs_per_year": ("Runs per year (assumed)", exact(request["runs_per_year"])),
        "price_per_hour_usd": (
            "Price per GPU-hour (assumed)",
            "the catalogue's" if price is None else usd(price),
        ),
    }
    return [
        (label, f"{value}, {_WHOSE[assumed_by[name]]}" if name in assumed_by else value)
        for name, (label, value) in values.items()
    ]


_WHOSE = {"lab": "the lab's", "catalogue": "the catalogue's"}


def model_name(name: str) -> str:
    """A model as people know it; a name that is no preset stays as it is."""
    if name == OWN_CONFIG:
        return "own config"
    return PRESETS[name].display_name if name in PRESETS else name


def input_size(request: Request) -> str:
    """What a sample is made of, such as ``128 tokens``; empty where that is not known yet."""
    return ", ".join(size for size in (_tokens(request), _pixels(request)) if size)


def _tokens(request: Request) -> str:
    return _with_unit(request.get("sequence_length"), "tokens")


def _pixels(request: Request) -> str:
    return _with_unit(request.get("image_size"), "pixels per side")


def gpu_name(name: str) -> str:
    """A GPU as its vendor writes it; a name that is not in the catalogue stays as it is."""
    if name == LOCAL:
        return "this lab's node"
    return GPUS[name].display_name if name in GPUS else name


def local_gpu(kind: str) -> str:
    """How a form and the API call a kind of GPU that a node has, to measure on."""
    return f"{LOCAL}:{kind}"


def gpu_of(analysis: Analysis) -> str:
    """The GPU of an analysis as its vendor writes it, be it measured or of the catalogue."""
    return analysis.measured_gpu or gpu_name(analysis.gpu)


def command_of(request: Request) -> str:
    """The command line that asks the engine the same question; a config is a file beside it."""
    words = ["python", "-m", "engine", "analyze", str(request["model"])]
    if request.get("config"):
        words += ["--config", "config.json"]
    for name in _ALWAYS:
        value = request.get(name)
        if value is not None:
            words += [_FLAGS.get(name, _flag(name)), _typed(value)]
    usual = usual_values(request)
    for name in _RARE:
        value = request.get(name)
        if value is not None and value != usual.get(name):
            words += [_flag(name), _typed(value)]
    return shlex.join(words)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _typed(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return plain_number(value) if isinstance(value, float) else str(value)


_FLAGS = {"memory_limit_bytes": "--memory-limit", "price_per_hour_usd": "--price-per-hour"}
_ALWAYS = (
    "gpu", "memory_limit_bytes", "precision", "optimizer", "mode", "sequence_length",
    "image_size", "current_batch_size", "batch_multiple", "global_batch_size", "hours_per_run",
    "runs_per_year", "price_per_hour_usd",
)  # fmt: skip
_RARE = (
    "task", "label_count", "attention", "gradient_checkpointing", "gradient_accumulation",
    "lora_rank", "lora_targets", "frozen_backbone", "compile", "parallelism", "world_size",
    "gradient_as_bucket_view",     "allocator",
)  # fmt: skip


def usual_values(request: Request) -> dict[str, Any]:
    """The values that a request would have where nothing but the model was said."""
    try:
        model = find_model(request["model"], request.get("config"))
    except InvalidInput:  # of a version that knew other models
        return DEFAULTS
    return DEFAULTS | _usual_head(model, request)


def _usual_head(model: Model, request: Request) -> dict[str, Any]:
    """The task and the labels that a model has by itself; unknown of a model of the hub."""
    if model.kind is Kind.UNKNOWN:
        return {}
    task = next((task for task in model.tasks if task == request.get("task")), model.task)
    return {"task": model.task, "label_count": model.label_count_for(task)}


def _changed(request: Request) -> dict[str, str]:
    """The values that are not the usual ones, in words."""
    usual = usual_values(request)
    return {
        name: _in_words(value)
        for name, value in request.items()
        if value is not None and value != usual.get(name)
    }


def _in_words(value: object) -> str:
    if value is True:
        return "on"
    return whole(value) if isinstance(value, int) else str(value)


def _architecture(request: Request) -> str:
    config = request.get("config") or {}
    return f"{config['model_type']}, by its config.json" if "model_type" in config else ""


def _parallelism(rare: Mapping[str, str]) -> str:
    how = rare.get("parallelism")
    views = ", gradients in its buckets" if "gradient_as_bucket_view" in rare else ""
    return f"{how} on {rare['world_size']} GPUs{views}" if how else ""


def _with_unit(value: int | str | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{whole(value) if isinstance(value, int) else value} {unit}"
