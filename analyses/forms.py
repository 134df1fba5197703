"""The form of a new analysis. It has no rules of its own: the engine's request decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.auth.models import User

from analyses import selectors, services
from analyses.formatting import gib_with_unit, plain_number, usd
from analyses.models import Analysis
from engine.errors import InvalidInput
from engine.gpus import GPUS, LOCAL, Gpu
from engine.presets import PRESETS
from engine.request import AnalysisRequest
from engine.workload import Mode, Optimizer, Precision, Workload

Choices = list[tuple[str, str]]

PRECISIONS: Choices = [
    (Precision.FP32, "fp32: 32-bit floats throughout"),
    (Precision.TF32, "tf32: fp32 with TF32 matrix units"),
    (Precision.BF16_MIXED, "bf16-mixed: autocast to bfloat16"),
    (Precision.FP16_MIXED, "fp16-mixed: autocast to float16, scaled loss"),
    (Precision.BF16_TRUE, "bf16-true: weights in bfloat16 too"),
]
OPTIMIZERS: Choices = [
    (Optimizer.ADAMW, "AdamW"),
    (Optimizer.SGD_MOMENTUM, "SGD with momentum"),
    (Optimizer.SGD, "SGD"),
    (Optimizer.NONE, "none: forward, loss and backward only"),
]
MODES: Choices = [
    (Mode.TRAIN, "train: dropout on"),
    (Mode.EVAL, "eval: dropout off, backward still runs"),
]


class ModelSelect(forms.RadioSelect):
    """A radio button for each preset, which the template shows with its description."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Add the preset, and its kind for the stylesheet's choice of size fields."""
        option = super().create_option(name, value, *args, **kwargs)
        preset = PRESETS[str(value)]
        option["preset"] = preset
        option["attrs"]["data-kind"] = preset.kind
        return option


def _number(
    label: str, help_text: str, placeholder: str = "", *, decimal: bool = False
) -> forms.CharField:
    # Plain text inputs: a number input would silently drop what it cannot read, and the engine's
    # message would never be seen.
    mode = "decimal" if decimal else "numeric"
    widget = forms.TextInput(
        attrs={"inputmode": mode, "autocomplete": "off", "placeholder": placeholder}
    )
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def _select(label: str, choices: Choices, help_text: str = "") -> forms.CharField:
    widget = forms.Select(choices=choices)
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def _sizes(field: str) -> str:
    """The defaults and bounds of one input size, for each preset that takes it."""
    return "; ".join(
        f"{preset.display_name} {limits.smallest:,} to {limits.largest:,}, "
        f"{limits.default:,} if left empty"
        for preset in PRESETS.values()
        if (limits := getattr(preset, field))
    )


class AnalysisForm(forms.Form):
    """A new analysis as raw text; :meth:`submit` lets the engine judge it.

    The fields are in the order of the page, which is the order for the first error.
    """

    model = forms.CharField(
        required=False,
        widget=ModelSelect(choices=[(name, p.display_name) for name, p in PRESETS.items()]),
    )
    gpu = _select("GPU", [], "Memory as CUDA reports it; on-demand price per hour, assumed.")
    current_batch_size = _number(
        "Current batch size", "Samples per step that you train with today."
    )
    batch_multiple = _number(
        "Batch multiple", "Only multiples of it are tried; 8 suits tensor cores."
    )
    memory_limit_bytes = _number(
        "Memory limit, bytes",
        "Emulates a smaller GPU. 1 GiB is 1,073,741,824 bytes.",
        "the whole GPU",
    )
    precision = _select("Precision", PRECISIONS)
    optimizer = _select("Optimizer", OPTIMIZERS, "Its state is kept between steps.")
    mode = _select("Mode", MODES)
    sequence_length = _number(
        "Sequence length, tokens", f"{_sizes('sequence_length')}.", "the model's default"
    )
    image_size = _number(
        "Image size, pixels per side", f"{_sizes('image_size')}.", "the model's default"
    )
    hours_per_run = _number("Hours per run", "GPU-hours of one training run today.", decimal=True)
    runs_per_year = _number("Runs per year", "How often the lab trains this.", decimal=True)
    price_per_hour_usd = _number(
        "Price per GPU-hour, USD",
        "Empty: the price shown with the GPU.",
        "the catalogue's",
        decimal=True,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        gpu = self.fields["gpu"].widget
        assert isinstance(gpu, forms.Select)  # noqa: S101  # tells the type checker what _select made
        gpu.choices = gpu_choices()

    def submit(self, owner: User) -> Analysis | None:
        """Submit the analysis, or put the engine's messages beside the fields.

        Returns:
            The queued analysis; ``None`` if the form now has errors.
        """
        try:
            return services.submit(owner, self.raw_fields())
        except InvalidInput as error:
            for name, message in error.fields.items():
                self.add_error(name if name in self.fields else None, _sentence(message))
            return None

    def raw_fields(self) -> dict[str, object]:
        """The text of each field, without the size that the chosen model does not take.

        The page hides that field, so a value left in it is not the user's mistake.
        """
        preset = PRESETS.get(self.cleaned_data["model"])
        unused = {
            name
            for name in ("sequence_length", "image_size")
            if preset and getattr(preset, name) is None
        }
        return {name: text for name, text in self.cleaned_data.items() if name not in unused}

    def focus_first_error(self) -> None:
        """Let the browser put the cursor into the first wrong field."""
        for name in self.fields:
            if name in self.errors:
                self.fields[name].widget.attrs["autofocus"] = True
                return


def default_values() -> dict[str, str]:
    """What the empty form proposes: BERT on an A10, in multiples of 8, else the engine's defaults.

    Multiples of 8 fill the tensor cores' tiles, and a person reads "288" more easily than "289".
    """
    request = AnalysisRequest(Workload(model="bert"), gpu="a10", batch_multiple=8)
    return values_of(request.to_dict()) | {
        "sequence_length": "",
        "image_size": "",
    }


def values_of(request: Mapping[str, Any]) -> dict[str, str]:
    """A stored request as the text of the form's fields."""
    return {name: _typed(request.get(name)) for name in AnalysisForm.base_fields}


def gpu_choices() -> list[tuple[str, str | Choices]]:
    """The catalogue in groups, after the lab's own nodes if there are any."""
    groups: dict[str, Choices] = {}
    for gpu in GPUS.values():
        groups.setdefault(_group(gpu), []).append((gpu.name, _gpu_label(gpu)))
    nodes = [
        f"{name}, {gib_with_unit(total)}"
        for name, total in selectors.nodes_with_gpu().values_list("gpu_name", "gpu_total_bytes")
    ]
    local: Choices = [(LOCAL, f"this lab's node: {' or '.join(nodes)}")] if nodes else []
    return [(name, choices) for name, choices in ({"This lab": local} | groups).items() if choices]


def _group(gpu: Gpu) -> str:
    if "GeForce" in gpu.display_name:
        return "GeForce"
    return "Workstation" if "RTX" in gpu.display_name else "Data centre"


def _gpu_label(gpu: Gpu) -> str:
    price = usd(gpu.price_per_hour_usd)
    return f"{gpu.display_name} · {gib_with_unit(gpu.total_bytes)} · {price}/h"


def _typed(value: object) -> str:
    if value is None:
        return ""
    return plain_number(value) if isinstance(value, float) else str(value)


def _sentence(message: str) -> str:
    return message[:1].upper() + message[1:] + "."
