"""The kinds of field that the form of a new analysis has, and what its lists offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from analyses import selectors
from analyses.formatting import gib_with_unit, usd
from analyses.lab.selectors import HeldPrice, key_of, prices
from analyses.models import Node
from analyses.question import local_gpu
from engine.gpus import GPUS, Gpu
from engine.models.kinds import Kind, Task
from engine.models.presets import PRESETS, Preset
from engine.workload import Attention, Mode, Optimizer, Parallelism, Precision

Choices = list[tuple[str, str]]
Groups = list[tuple[str, Choices]]

OTHER_MODEL = "other"
"""The choice of a model that is no preset; two fields of its own then say which."""

SIZES = ("sequence_length", "image_size")
"""The fields that only some models take."""

KINDS = {
    Kind.TEXT: "Text",
    Kind.IMAGE: "Images",
    Kind.IMAGE_TEXT: "Images and text",
    Kind.SPEECH: "Speech",
}

PRECISIONS: Choices = [
    (Precision.FP32, "fp32: 32-bit floats throughout"),
    (Precision.TF32, "tf32: fp32 with TF32 matrix units"),
    (Precision.BF16_MIXED, "bf16-mixed: autocast to bfloat16"),
    (Precision.FP16_MIXED, "fp16-mixed: autocast to float16, scaled loss"),
    (Precision.BF16_TRUE, "bf16-true: weights in bfloat16 too"),
]
OPTIMIZERS: Choices = [
    (Optimizer.ADAMW, "AdamW, fused"),
    (Optimizer.ADAMW_FOREACH, "AdamW, foreach"),
    (Optimizer.ADAMW_8BIT, "AdamW, 8-bit (bitsandbytes)"),
    (Optimizer.ADAFACTOR, "Adafactor"),
    (Optimizer.LION, "Lion"),
    (Optimizer.SGD_MOMENTUM, "SGD with momentum"),
    (Optimizer.SGD, "SGD"),
    (Optimizer.RMSPROP, "RMSprop"),
    (Optimizer.ADAGRAD, "Adagrad"),
    (Optimizer.NONE, "none: forward, loss and backward only"),
]
MODES: Choices = [
    (Mode.TRAIN, "train: dropout on"),
    (Mode.EVAL, "eval: dropout off, backward still runs"),
]
TASKS: Choices = [
    ("", "the model's own"),
    *((task, task.value.replace("-", " ")) for task in Task),
]
ATTENTIONS: Choices = [
    (Attention.SDPA, "sdpa: PyTorch chooses the kernel"),
    (Attention.EAGER, "eager: every score is kept"),
    (Attention.FLASH, "flash: FlashAttention only"),
]
PARALLELISMS: Choices = [
    (Parallelism.NONE, "none: one GPU"),
    (Parallelism.DDP, "DDP: a whole copy on each GPU"),
    (Parallelism.FSDP, "FSDP: everything sharded"),
]


class ModelSelect(forms.RadioSelect):
    """A radio button for each preset, which the template shows in groups."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Add the preset, and as attributes what stylesheet and script need of it."""
        option = super().create_option(name, value, *args, **kwargs)
        preset = PRESETS.get(str(value))
        option["preset"] = preset
        option["search"] = search_text(preset) if preset else ""
        option["group"] = KINDS[preset.kind] if preset else "Any other"
        option["attrs"] |= {
            "data-kind": preset.kind if preset else OTHER_MODEL,
            "data-facts": model_facts(str(value)),
            "data-tasks": " ".join(preset.tasks if preset else Task),
            **{f"data-{size}": size_help(str(value), size) for size in SIZES},
        }
        return option


def search_text(preset: Preset) -> str:
    """What a preset is found by, in small letters."""
    names = f"{preset.display_name} {preset.name} {preset.hub_id}"
    kinds = f"{KINDS[preset.kind]} {preset.kind} {' '.join(preset.tasks)}"
    return f"{names} {kinds} {preset.description}".lower()


def model_facts(model: str) -> str:
    """What is to be known of a choice of model, in a line."""
    preset = PRESETS.get(model)
    return f"{preset.hub_id}: {preset.description}" if preset else ""


def size_help(model: str, size: str) -> str:
    """The default and the bounds of one input size of a choice of model."""
    preset = PRESETS.get(model)
    limits = getattr(preset, size, None)
    if limits is None:
        return "Only for a model that takes it. Empty: the model's default."
    return f"{limits.smallest:,} to {limits.largest:,}; {limits.default:,} if left empty."


def number(
    label: str, help_text: str = "", placeholder: str = "", *, decimal: bool = False
) -> forms.CharField:
    """A number as text."""
    # Plain text inputs: a number input would silently drop what it cannot read, and the engine's
    # message would never be seen.
    return text(label, help_text, placeholder, inputmode="decimal" if decimal else "numeric")


def text(
    label: str, help_text: str = "", placeholder: str = "", inputmode: str = "text"
) -> forms.CharField:
    """One line of text."""
    widget = forms.TextInput(
        attrs={
            "inputmode": inputmode,
            "autocomplete": "off",
            "spellcheck": "false",
            "placeholder": placeholder,
        }
    )
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def area(label: str, help_text: str, placeholder: str) -> forms.CharField:
    """Several lines of text."""
    widget = forms.Textarea(attrs={"rows": 5, "spellcheck": "false", "placeholder": placeholder})
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def select(label: str, choices: Choices | Groups, help_text: str = "") -> forms.CharField:
    """A list to choose from; what was sent is judged by the engine, not by this list."""
    widget = forms.Select(choices=choices)
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def tick(label: str, help_text: str = "") -> forms.BooleanField:
    """A box to tick."""
    return forms.BooleanField(label=label, help_text=help_text, required=False)


def model_choices() -> Choices:
    """The presets by what they read, then the choice of any other model."""
    presets = [p for kind in KINDS for p in PRESETS.values() if p.kind is kind]
    names = [(preset.name, preset.display_name) for preset in presets]
    return [*names, (OTHER_MODEL, "Hugging Face id or config.json")]


def gpu_choices() -> Groups:
    """The catalogue in groups, after the lab's own nodes if there are any."""
    kinds: dict[str, list[Node]] = {}
    for node in selectors.nodes_with_gpu():
        kinds.setdefault(node.gpu_name, []).append(node)
    held = prices([*GPUS, *kinds])
    groups: dict[str, Choices] = {}
    for gpu in GPUS.values():
        groups.setdefault(_group(gpu), []).append((gpu.name, _gpu_label(gpu, held[gpu.name])))
    local: Choices = [
        (local_gpu(kind), _kind_label(nodes, held[key_of(kind)])) for kind, nodes in kinds.items()
    ]
    return [(name, choices) for name, choices in ({"This lab": local} | groups).items() if choices]


def _kind_label(nodes: Sequence[Node], price: HeldPrice) -> str:
    """A kind of GPU that the lab has, what it costs if that is known, and where."""
    first, names = nodes[0], ", ".join(node.name for node in nodes)
    parts = [first.gpu_name, gib_with_unit(first.gpu_total_bytes), _per_hour(price)]
    return " · ".join([part for part in parts if part] + [f"measured on {names}"])


def _group(gpu: Gpu) -> str:
    if "GeForce" in gpu.display_name:
        return "GeForce"
    return "Workstation" if "RTX" in gpu.display_name else "Data centre"


def _gpu_label(gpu: Gpu, price: HeldPrice) -> str:
    return f"{gpu.display_name} · {gib_with_unit(gpu.total_bytes)} · {_per_hour(price)}"


def _per_hour(price: HeldPrice) -> str:
    if price.usd is None:
        return ""
    return f"{usd(price.usd)}/h" + (", the lab's price" if price.is_the_labs else "")
