"""The form of a new analysis. It has no rules of its own: the engine's request decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User

from analyses import services
from analyses.form_fields import (
    ATTENTIONS,
    MODES,
    OPTIMIZERS,
    OTHER_MODEL,
    PARALLELISMS,
    PRECISIONS,
    SIZES,
    TASKS,
    ModelSelect,
    area,
    gpu_choices,
    model_choices,
    model_facts,
    number,
    select,
    size_help,
    text,
    tick,
)
from analyses.formatting import exact
from analyses.lab.selectors import lab_settings
from analyses.models import Analysis
from analyses.question import DEFAULTS
from engine.errors import InvalidInput
from engine.gpus import LOCAL
from engine.models.presets import PRESETS

FOLDED = {
    "limit": ("Memory limit and allocator", ("memory_limit_bytes", "allocator")),
    "training": (
        "How it is trained",
        (
            "mode", "attention", "gradient_accumulation", "global_batch_size", "lora_rank",
            "lora_targets", "gradient_checkpointing", "frozen_backbone", "compile",
        ),
    ),
    "several": ("Several GPUs", ("parallelism", "world_size", "gradient_as_bucket_view")),
    "inputs": ("Task and labels", ("task", "label_count")),
}  # fmt: skip
"""The settings few people change, each group behind its title."""


@dataclass(frozen=True)
class Group:
    """Fields behind a title, open where there is something to see."""

    title: str
    fields: list[forms.BoundField]
    is_open: bool


class AnalysisForm(forms.Form):
    """A new analysis as raw text; :meth:`submit` lets the engine judge it.

    The fields are in the order of the page, which is the order for the first error.
    """

    model = forms.CharField(required=False, widget=ModelSelect(choices=model_choices()))
    other_model = text(
        "Hugging Face id",
        "Only its config.json is fetched: no weights, no code. With a config below: any name.",
        "org/name",
    )
    config = area(
        "config.json",
        "For a model that is not on the hub, or where it cannot be reached.",
        '{"model_type": "bert", "hidden_size": 768, …}',
    )
    gpu = select(
        "GPU",
        [],
        "Memory as CUDA reports it; assumed price of an hour. The catalogue's GPUs are predicted "
        "and need not be at hand.",
    )
    current_batch_size = number(
        "Current batch size",
        "Samples per step and GPU that you train with today; the speedup is counted from it.",
    )
    batch_multiple = number(
        "Batch multiple", "Only multiples of it are tried; 8 suits tensor cores, 1 tries any."
    )
    memory_limit_bytes = number(
        "Memory limit",
        "Emulates a smaller GPU: 8GiB, 500MiB or plain bytes.",
        "the whole GPU",
    )
    allocator = text(
        "Allocator options",
        "As in PYTORCH_ALLOC_CONF, such as expandable_segments:True.",
        "PyTorch's default",
    )
    precision = select(
        "Precision",
        PRECISIONS,
        "What the step computes in; use that of your training. bf16 needs Ampere or newer.",
    )
    optimizer = select(
        "Optimizer",
        OPTIMIZERS,
        "Updates the weights. AdamW keeps two more numbers for each weight, plain SGD none.",
    )
    sequence_length = number("Sequence length, tokens", "", "the model's default")
    image_size = number("Image size, pixels per side", "", "the model's default")
    mode = select("Mode", MODES, "A training run is in train; eval only takes dropout away.")
    attention = select(
        "Attention", ATTENTIONS, "How scores are computed; sdpa is what transformers takes."
    )
    gradient_accumulation = number(
        "Gradient accumulation",
        "Micro-batches to one optimizer step; batches are micro-batches.",
        "1",
    )
    global_batch_size = number(
        "Global batch to keep",
        "Samples per optimizer step over all micro-batches and GPUs.",
        "none",
    )
    lora_rank = number(
        "LoRA rank",
        "Trains small adapters of this rank, such as 8 or 16, and freezes the rest.",
        "no LoRA",
    )
    lora_targets = text(
        "LoRA targets", "Names of modules, separated by commas, or all-linear.", "all-linear"
    )
    gradient_checkpointing = tick(
        "Gradient checkpointing", "Activations are computed again in backward: less memory, slower."
    )
    frozen_backbone = tick(
        "Frozen backbone", "Only the head is trained: no gradients for the rest."
    )
    compile = tick("torch.compile", "The compiled step is only measured, on a node of the lab.")
    parallelism = select(
        "Parallelism", PARALLELISMS, "How several GPUs share the work. Batch sizes are per GPU."
    )
    world_size = number("GPUs", "How many share the work.", "1")
    gradient_as_bucket_view = tick(
        "Gradients as bucket views", "DDP then holds gradients once, not twice."
    )
    task = select("Task", TASKS, "What the model is trained to do; it decides head and loss.")
    label_count = number(
        "Labels", "Classes of a classifier; one makes it a regression.", "the model's own"
    )
    hours_per_run = number(
        "Hours per run",
        "GPU-hours that one training run takes today; of several GPUs, added up.",
        decimal=True,
    )
    runs_per_year = number("Runs per year", "How often the lab trains this.", decimal=True)
    price_per_hour_usd = number(
        "Price per GPU-hour, USD", "Of one GPU.", "the price shown with the GPU", decimal=True
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        gpu = self.fields["gpu"].widget
        assert isinstance(gpu, forms.Select)  # noqa: S101  # tells the type checker what select made
        gpu.choices = gpu_choices()
        self.asks_hub: bool = settings.ASKS_HUB
        if not self.asks_hub:
            self.fields["other_model"].help_text = (
                "This lab does not ask the hub (MEMORYMARK_HUB=off): give the config below, under "
                "any name."
            )
        chosen = str(self["model"].value())
        for name in SIZES:
            self.fields[name].help_text = size_help(chosen, name)
        lab = lab_settings()
        for name in ("hours_per_run", "runs_per_year"):
            value = exact(getattr(lab, name))
            self.fields[name].help_text += f" The lab's default: {value}."
            self.fields[name].widget.attrs["placeholder"] = value

    def submit(self, owner: User) -> Analysis | None:
        """Submit the analysis, or put the engine's messages beside the fields.

        Returns:
            The queued analysis; ``None`` if the form now has errors.
        """
        try:
            return services.submit(owner, self.raw_fields())
        except InvalidInput as error:
            self.add_messages(error)
            return None

    def add_messages(self, error: InvalidInput) -> None:
        """Put the engine's messages beside the fields they are about."""
        for name, message in error.fields.items():
            self.add_error(self._place_of(name), _sentence(message))

    def raw_fields(self) -> dict[str, object]:
        """What was typed, without the fields that do not apply and are hidden on the page.

        A value left in one of them is not the user's mistake.
        """
        given = dict(self.cleaned_data)
        other_model, config = given.pop("other_model"), given.pop("config")
        if not given["gpu"].startswith(LOCAL):
            del given["compile"]
        if given["model"] == OTHER_MODEL:
            return given | {"model": other_model, "config": config}
        preset = PRESETS.get(given["model"])
        for name in SIZES:
            if preset and getattr(preset, name) is None:
                del given[name]
        return given

    def _place_of(self, name: str) -> str | None:
        """The field that shows the message for a field of the engine's; ``None``: above all."""
        if name == "model" and self.cleaned_data["model"] == OTHER_MODEL:
            return "other_model"
        return name if name in self.fields else None

    def model_facts(self) -> str:
        """What is to be known of the chosen model."""
        return model_facts(str(self["model"].value()))

    def folded(self) -> dict[str, Group]:
        """The groups of settings few people change."""
        return {
            key: Group(title, [self[name] for name in names], any(map(self._tells, names)))
            for key, (title, names) in FOLDED.items()
        }

    def _tells(self, name: str) -> bool:
        """Whether a field has an error, or another value than its default."""
        field = self[name]
        value = field.value() or ""
        return bool(field.errors) or value not in ("", str(DEFAULTS.get(name)))

    def focus_first_error(self) -> None:
        """Let the browser put the cursor into the first wrong field."""
        for name in self.fields:
            if name in self.errors:
                self.fields[name].widget.attrs["autofocus"] = True
                return


def _sentence(message: str) -> str:
    return message[:1].upper() + message[1:] + "."
