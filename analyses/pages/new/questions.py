"""The questions of the form and the usual ways of training, both of which fill it in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from engine.core.choices import Goal, Precision, Quantization
from engine.core.fields import Choice
from engine.core.optimizers import Optimizer
from engine.gpus import ANY, GPUS, LOCAL, catalogue_name
from engine.models.presets import PRESETS
from engine.models.tasks import Task


class Question(Choice):
    """The questions that the form opens with."""

    BATCH = "batch", "Which batch?"
    FIT = "fit", "Does it fit?"
    GPU = "gpu", "Which GPU?"
    COMPARE = "compare", "Compare settings"
    GENERATION = "generation", "Generating text?"
    LENGTH = "length", "Longest sequence?"

    @property
    def button(self) -> str:
        return _BUTTONS[self]

    @property
    def goal(self) -> Goal:
        """The goal of the analyses that answer it."""
        return next((goal for goal in Goal if goal.value == self.value), Goal.BATCH)

    @property
    def about(self) -> str:
        return _ABOUT[self]


_BUTTONS = {
    Question.BATCH: "Analyze",
    Question.FIT: "Check this batch",
    Question.GPU: "Find the GPU",
    Question.COMPARE: "Compare",
    Question.GENERATION: "Find the limits",
    Question.LENGTH: "Find the longest",
}
_ABOUT = {
    Question.BATCH: "Which batch size to train with on one GPU, and what that saves.",
    Question.FIT: "Whether one batch size fits on one GPU, and what would make it fit.",
    Question.GPU: "Which catalogue GPU trains it at the lowest cost. One analysis.",
    Question.COMPARE: "Models, precisions, batches and GPUs side by side. One analysis for each, "
    "up to 24. Tick what to compare.",
    Question.GENERATION: "How many texts can be generated at once on one GPU, how long they may "
    "be, and what sets the limits.",
    Question.LENGTH: "The longest sequence that fits in training at one batch size, on one GPU.",
}

USUAL_PRECISION = "usual"
"""The precision that depends on the GPU; a choice of the form, and what training presets set."""

LORA_RANK = 16
"""Assumed: guides use 8 to 64."""


@dataclass(frozen=True)
class TrainingPreset:
    """A usual way of training, which sets some fields of the form.

    Attributes:
        words: Words by which the search for a model finds it, besides its name.
        tasks: The task is the first of these that the model has; else the model's own.
    """

    name: str
    label: str
    words: tuple[str, ...]
    precision: str = USUAL_PRECISION
    gradient_checkpointing: bool = False
    lora_rank: int | None = None
    quantization: str = Quantization.NONE
    tasks: tuple[Task, ...] = ()

    def fields(self) -> dict[str, str]:
        """The fields it sets for any model, as the form has them."""
        return {
            "precision": self.precision,
            "optimizer": Optimizer.ADAMW,
            "gradient_checkpointing": "on" if self.gradient_checkpointing else "",
            "lora_rank": str(self.lora_rank or ""),
            "quantization": self.quantization,
        }

    @property
    def as_json(self) -> str:
        """The fields as JSON, for the script of the form."""
        return json.dumps(self.fields())

    def fields_for(self, model: str) -> dict[str, str]:
        """All fields that it sets for a model of the form."""
        offered = PRESETS[model].tasks if model in PRESETS else ()
        task = next((task for task in self.tasks if task in offered), "")
        return self.fields() | {"task": task}


_LANGUAGE = (Task.CAUSAL_LANGUAGE_MODELLING, Task.MASKED_LANGUAGE_MODELLING)
_CLASSES = (Task.SEQUENCE_CLASSIFICATION, Task.IMAGE_CLASSIFICATION)

TRAINING_PRESETS = {
    preset.name: preset
    for preset in (
        TrainingPreset(
            "pre-training", "Pre-training", ("pretraining", "pretrain"), tasks=_LANGUAGE
        ),
        TrainingPreset(
            "fine-tuning",
            "Full fine-tuning",
            ("finetuning", "finetune", "fine-tune", "sft"),
            gradient_checkpointing=True,
        ),
        TrainingPreset(
            "lora",
            "LoRA",
            ("peft", "adapter"),
            precision=Precision.BF16_TRUE,  # the frozen weights are loaded in half precision
            gradient_checkpointing=True,
            lora_rank=LORA_RANK,
        ),
        TrainingPreset(
            "qlora",
            "QLoRA",
            ("4-bit", "4bit", "nf4", "bitsandbytes"),
            precision=Precision.BF16_TRUE,
            gradient_checkpointing=True,
            lora_rank=LORA_RANK,
            quantization=Quantization.NF4,
        ),
        TrainingPreset("classifier", "Classifier", ("classification", "classify"), tasks=_CLASSES),
    )
}


def usual_precision(gpu: str) -> Precision:
    """The precision that people use on a GPU: bf16-mixed where it has bf16.

    Args:
        gpu: The form's value; one that the catalogue does not know is taken to have no more than
            fp32.
    """
    if gpu == ANY:
        return Precision.BF16_MIXED
    known = GPUS.get(gpu) or GPUS.get(catalogue_name(gpu.removeprefix(f"{LOCAL}:")) or "")
    if known is None:
        return Precision.FP32
    return Precision.FP16_MIXED if known.bf16_flops is None else Precision.BF16_MIXED


def with_preset(values: Mapping[str, str], name: str) -> dict[str, str]:
    """The values of a form with those of a training preset, if there is one so named."""
    preset = TRAINING_PRESETS.get(name)
    return {**values, **(preset.fields_for(values["model"]) if preset else {})}
