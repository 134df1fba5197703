"""The file of past errors that is installed with the engine, made from the result files."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results.files import Result
from engine.gpus import catalogue_name
from engine.models.presets import find_model
from engine.prediction.timing.past_errors import ALL, Errors, PredictedQuantity, family_of_type

STEP_TIMES = Path(__file__).parents[1] / "data" / "step_time_predictions.csv"

_HEAD = """\
# How far predictions were off published measurements, as shares of what was measured; written by
# `python -m benchmarks.results --tables`, do not edit. past_errors.py beside it reads it.
#
# Memory: the published measurements of whole steps and the runs of xMem's evaluation that fitted,
# as `python -m benchmarks.accuracy` prints them. Step times: the published rows by constants that
# had not seen their architecture, as `python -m benchmarks.step_time` prints them.
"""

_TYPES = (
    (r"ConvNeXt|timm:convnext_", "convnext"),
    (r"Mobe?(ile)?NetV3", "mobilenet_v3"),
    (r"MobileNetV2|timm:mobilenetv2", "mobilenet_v2"),
    (r"RegNet|timm:regnet[xy]_", "regnet"),
    (r"ResNet|timm:resnet\d+$", "resnet"),
    (r"VGG|timm:vgg", "vgg"),
    (r"T5-", "t5"),
    (r"gpt-neo", "gpt_neo"),
    (r"Cerebras-GPT|distilgpt2|ns-gpt2|.*nanogpt", "gpt2"),
    (r"DeepSeek-R1-Distill-Qwen", "qwen2"),
    (r"opt-|ns-opt", "opt"),
    (r"bert-|ns-bert", "bert"),
    (r"timm:vit_\w+_patch", "vit"),
    (r"timm:deit_", "deit"),
    (r"timm:beit_", "beit"),
    (r"timm:swin_", "swin"),
    (r"ViT-", "vit"),
)
"""The ``model_type`` of the models in the sources, by how their names begin."""


@dataclass(frozen=True)
class Row:
    """The error of one prediction; ``gpu`` is empty for one that the catalogue does not have."""

    of: PredictedQuantity
    model_type: str
    family: str
    gpu: str
    error: float
    source: str


def rows(read: Callable[[str], Result]) -> Iterator[Row]:
    """Every prediction of a whole step that is held against a measurement."""
    figures = read("accuracy").figures
    for one in figures["comparisons"]:
        measured = one["measurement"]
        generates = measured.get("texts") is not None
        part = measured["forward_only"] or generates or measured["growth_from"] is not None
        if part or one["error"] is None:
            continue
        workload = measured["workload"]
        kind = _model_type(workload) if workload else _type_of(measured["name"])
        yield _memory(kind, measured["gpu"]["display_name"], one["error"], "published.toml")
    for one in figures["xmem"]["comparisons"]:
        if one["ran"] and one["predicted_bytes"] is not None:
            error = one["predicted_bytes"] / one["measured_bytes"] - 1
            yield _memory(_type_of(one["name"]), one["gpu"], error, "xMem")
    with STEP_TIMES.open(encoding="utf-8", newline="") as file:
        for one in csv.DictReader(file):
            if one["fitted"] == "1":
                error = float(one["unseen"]) / float(one["measured"]) - 1
                kind, source = _type_of(one["trace"]), one["source"]
                yield Row(
                    PredictedQuantity.STEP_TIME, kind, one["family"], one["gpu"], error, source
                )


def _memory(model_type: str, gpu: str, error: float, source: str) -> Row:
    family = family_of_type(model_type)
    return Row(
        PredictedQuantity.MEMORY, model_type, family, catalogue_name(gpu) or "", error, source
    )


def _model_type(workload: dict[str, Any]) -> str:
    model_type: str = find_model(workload["model"], workload.get("config")).config()["model_type"]
    return model_type


def _type_of(name: str) -> str:
    """The ``model_type`` of a model by its name in a source; empty for another architecture."""
    return next((kind for start, kind in _TYPES if re.match(start, name)), "")


def contents(read: Callable[[str], Result]) -> str:
    """The text of the file."""
    groups: dict[tuple[PredictedQuantity, str, str], list[Row]] = defaultdict(list)
    for row in rows(read):
        for models in filter(None, (row.model_type, row.family, ALL)):
            for gpu in {row.gpu, ""} if models != ALL else {""}:
                groups[row.of, models, gpu].append(row)
    return _HEAD + "".join(_group(key, groups[key]) for key in sorted(groups))


def _group(key: tuple[PredictedQuantity, str, str], found: list[Row]) -> str:
    errors = Errors.of(row.error for row in found)
    if errors is None:
        raise ValueError(f"the group {key} is empty")
    lines = [
        "[[group]]",
        *(f'{n} = "{v}"' for n, v in zip(("of", "models", "gpu"), key, strict=True)),
    ]
    lines += [f"count = {errors.count}", f"median = {errors.median:.4f}"]
    if errors.percentile_90 is not None:
        lines.append(f"percentile_90 = {errors.percentile_90:.4f}")
    lines.append(f"sources = {json.dumps(sorted({row.source for row in found}))}")
    return "\n" + "\n".join(lines) + "\n"
