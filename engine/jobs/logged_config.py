"""The config that a training job has logged, as fields of a request for an analysis.

It reads the names of transformers' ``TrainingArguments`` and model configs, which the Trainer logs
to W&B and MLflow, those of Lightning's ``precision``, and a few that people use in their own loops.
A value that it does not know stays out: the form of an analysis then has its default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..core.border import read
from ..core.choices import Precision
from ..core.errors import InvalidInput
from ..interface.request import FIELDS
from ..models.presets import PRESETS, find_model
from ..recipes.steps import OPTIMIZERS

_MODEL = ("model_name_or_path", "_name_or_path", "name_or_path", "model_name", "model_id", "model")
_COPIED = {
    "current_batch_size": ("per_device_train_batch_size", "micro_batch_size", "batch_size"),
    "gradient_accumulation": ("gradient_accumulation_steps",),
    "sequence_length": (
        "max_seq_length", "max_seq_len", "sequence_length", "seq_length", "block_size",
        "cutoff_len",
    ),
    "gradient_checkpointing": ("gradient_checkpointing",),
    "lora_rank": ("lora_rank", "lora_r"),
}  # fmt: skip
"""Keys by field, the surest first."""

_OF_SFT = "packing"
"""A key of TRL's ``SFTConfig``, whose ``max_length`` is that of samples; in a model's config it is
of generated texts."""

_SLURM_JOB = re.compile(r"(?:.*[./])?slurm[._/-]?job_?id", re.IGNORECASE)

_LIGHTNING = {
    "32": Precision.FP32,
    "32-true": Precision.FP32,
    "16": Precision.FP16_MIXED,
    "16-mixed": Precision.FP16_MIXED,
    "bf16": Precision.BF16_MIXED,
    "bf16-mixed": Precision.BF16_MIXED,
    "bf16-true": Precision.BF16_TRUE,
}


def request_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that a logged config gives; MLflow logs all values as text."""
    found: dict[str, Any] = {
        field: value
        for field, keys in _COPIED.items()
        if (value := next((config[key] for key in keys if key in config), None)) is not None
    }
    if _OF_SFT in config:
        found.setdefault("sequence_length", config.get("max_length"))
    found["model"] = _model(config)
    found["precision"] = _precision(config)
    found["optimizer"] = OPTIMIZERS.get(str(config.get("optim", "")))
    return {
        name: checked
        for name, value in found.items()
        if value is not None and (checked := _checked(name, value)) is not None
    }


def slurm_job_id(logged: Mapping[str, Any]) -> str:
    """The number of the Slurm job that a run has logged, such as a copy of ``SLURM_JOB_ID``."""
    found = (value for name, value in logged.items() if _SLURM_JOB.fullmatch(name))
    return next((str(one) for one in found if str(one).isdecimal()), "")


def _checked(name: str, value: Any) -> Any:
    """The value as the field has it; ``None`` if it does not take it."""
    wrong: dict[str, str] = {}
    found = read(FIELDS[name], str(value), wrong)
    return None if wrong else found


def _model(config: Mapping[str, Any]) -> str | None:
    """A preset or an id of the Hub; ``None`` if the config names neither, such as a folder."""
    for key in _MODEL:
        name = config.get(key)
        if not isinstance(name, str) or not name:
            continue
        for preset in PRESETS.values():
            if name in (preset.hub_id, preset.hub_id.rpartition("/")[2]):
                return preset.name
        try:
            return find_model(name).name
        except InvalidInput:
            continue
    return None


def _precision(config: Mapping[str, Any]) -> Precision | None:
    named = str(config.get("precision", ""))
    if named in list(Precision):
        return Precision(named)
    if named in _LIGHTNING:
        return _LIGHTNING[named]
    if not {"bf16", "fp16"} & config.keys():
        return None
    weights = str(config.get("dtype") or config.get("torch_dtype") or "").rpartition(".")[2]
    if _is_on(config, "bf16"):
        return Precision.BF16_TRUE if weights == "bfloat16" else Precision.BF16_MIXED
    if _is_on(config, "fp16"):
        return Precision.FP16_MIXED
    return Precision.TF32 if _is_on(config, "tf32") else Precision.FP32


def _is_on(config: Mapping[str, Any], key: str) -> bool:
    return str(config.get(key)).lower() == "true"


_SPEEDS = (
    "train_samples_per_second",  # transformers' Trainer
    "train/train_samples_per_second",  # the same in W&B
    "samples_per_second",
    "train/samples_per_second",
    "throughput/samples_per_sec",  # Composer's SpeedMonitor
)


def logged_speed(metrics: Mapping[str, object]) -> float | None:
    """Samples per second over all GPUs; ``None`` if none of the usual names is logged."""
    found = (metrics.get(name) for name in _SPEEDS)
    return next((float(one) for one in found if isinstance(one, int | float) and one > 0), None)
