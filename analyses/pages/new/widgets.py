"""The new-analysis form's inputs, and the models and GPUs that its lists offer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from django import forms

from analyses.charts.gpu_map import short_name
from analyses.formatting import local_gpu
from analyses.jobs import lab_state
from analyses.lab.settings import HeldPrice, key_of, prices
from analyses.models import Node
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.core.fields import Field
from engine.core.numbers import usd
from engine.core.sizes import gib
from engine.gpus import GPUS, Gpu, by_family
from engine.interface.texts import unsuited
from engine.interface.workload import Workload
from engine.models import timm_models
from engine.models.model import missing_modules
from engine.models.presets import PRESETS, Preset
from engine.models.tasks import SIZES, Kind, Task
from engine.versions import software

Choices = list[tuple[str, str]]
Groups = list[tuple[str, Choices]]

OTHER_MODEL = "other"
"""The choice of a model that is no preset; its ID or config is then in two other fields."""

Offered = Mapping[str, Mapping[str, str]]
"""Versions that nodes online offer, by the name of the environment."""

_NAMED = ("transformers", "torch")
"""The libraries whose versions are named in the lab's own choice."""

KINDS = {
    Kind.TEXT: "Text",
    Kind.IMAGE: "Images",
    Kind.IMAGE_TEXT: "Images and text",
    Kind.VIDEO: "Video",
    Kind.SPEECH: "Speech",
}

_OF_TEXT = {
    Task.CAUSAL_LANGUAGE_MODELLING: "Language models",
    Task.SEQUENCE_CLASSIFICATION: "Text encoders",
    Task.SENTENCE_EMBEDDING: "Text embeddings",
    Task.SEQUENCE_TO_SEQUENCE: "Text to text",
}
"""Most presets are of text, so their default tasks part them further."""

_WITH_COMMAS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)


class NumberField(forms.CharField):
    """The text of a number; with commas between its thousands, as people write them, too."""

    def to_python(self, value: Any) -> str:
        """The text without such commas; the engine says what else is wrong with it."""
        text = str(super().to_python(value))
        return text.replace(",", "") if _WITH_COMMAS.fullmatch(text) else text


class ModelSelect(forms.RadioSelect):
    """A radio button for each preset, which the template shows in groups."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Add the preset, and the attributes for style sheet and script."""
        option = super().create_option(name, value, *args, **kwargs)
        preset = PRESETS.get(str(value))
        option["preset"] = preset
        option["search"] = search_text(preset) if preset else ""
        option["group"] = group_of(preset) if preset else "Any other"
        option["attrs"] |= {
            "data-kind": preset.kind if preset else OTHER_MODEL,
            "data-facts": model_facts(str(value)),
            "data-tasks": " ".join(preset.tasks if preset else Task),
            "data-unsuited": " ".join(unsuited_goals(preset.name)) if preset else "",
            **{f"data-{size}": size_help(str(value), size) for size in SIZES},
        }
        return option


@cache
def unsuited_goals(preset: str) -> list[Goal]:
    """The goals that have no answer for a preset and its usual task."""
    return [goal for goal in Goal if unsuited(Workload(preset), goal)]


def group_of(preset: Preset) -> str:
    """The heading that a preset is listed under."""
    kind = KINDS[preset.kind]
    return _OF_TEXT.get(preset.task, kind) if preset.kind is Kind.TEXT else kind


def search_text(preset: Preset) -> str:
    names = f"{preset.display_name} {preset.name} {preset.hub_id}"
    kinds = f"{group_of(preset)} {preset.kind} {' '.join(preset.tasks)}"
    return f"{names} {kinds} {preset.description}".lower()


def model_facts(model: str) -> str:
    preset = PRESETS.get(model)
    return f"{preset.hub_id}: {preset.description}" if preset else ""


def size_help(model: str, size: str) -> str:
    """The bounds and the default of a model's input size."""
    preset = PRESETS.get(model)
    limits = preset.limits_for_any(size) if preset else None
    if limits is None:
        return "Only for models that take it. Leave blank for the model's default."
    return f"{limits.smallest:,} to {limits.largest:,}. Leave blank for {limits.default:,}."


def input_for(field: Field) -> forms.Field:
    """The input for a field of a request; the engine validates what is sent."""
    label, help_text = field.label_with_unit, field.described.help
    placeholder = field.described.empty or (field.default_text if field.group.is_rare else "")
    if field.choices:
        empty = [("", field.described.empty)] if field.is_optional else []
        return select(label, [*empty, *field.choices], help_text)
    if field.is_switch:
        return tick(label, help_text)
    if field.is_number:
        return number(label, help_text, placeholder, decimal=field.kind is float)
    return text(label, help_text, placeholder)


def number(
    label: str, help_text: str = "", placeholder: str = "", *, decimal: bool = False
) -> forms.CharField:
    """A text input: a number input silently drops what it cannot read."""
    widget = _line(placeholder, "decimal" if decimal else "numeric")
    return NumberField(label=label, help_text=help_text, required=False, widget=widget)


def text(label: str, help_text: str = "", placeholder: str = "") -> forms.CharField:
    widget = _line(placeholder, "text")
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def _line(placeholder: str, inputmode: str) -> forms.TextInput:
    return forms.TextInput(
        attrs={
            "inputmode": inputmode,
            "autocomplete": "off",
            "spellcheck": "false",
            "placeholder": placeholder,
        }
    )


def area(label: str, help_text: str, placeholder: str) -> forms.CharField:
    widget = forms.Textarea(attrs={"rows": 5, "spellcheck": "false", "placeholder": placeholder})
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def select(label: str, choices: Choices | Groups, help_text: str = "") -> forms.CharField:
    widget = forms.Select(choices=choices)
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def tick(label: str, help_text: str = "") -> forms.BooleanField:
    return forms.BooleanField(label=label, help_text=help_text, required=False)


def ticks(label: str, choices: Choices) -> forms.MultipleChoiceField:
    widget = forms.CheckboxSelectMultiple()
    return forms.MultipleChoiceField(label=label, choices=choices, required=False, widget=widget)


def timm_names() -> list[str]:
    """The models of timm that the search also finds; none where timm is not installed."""
    return [] if missing_modules("timm") else timm_models.names()


def model_choices() -> Choices:
    """The presets, then the choice of any other model."""
    return [*preset_choices(), (OTHER_MODEL, "Hugging Face ID or config.json")]


def preset_choices() -> Choices:
    """The presets, group by group."""
    groups = [*_OF_TEXT.values(), *KINDS.values()]
    presets = sorted(PRESETS.values(), key=lambda preset: groups.index(group_of(preset)))
    return [(preset.name, preset.display_name) for preset in presets]


def gpu_choices() -> Groups:
    """The catalogue in groups, after the lab's own nodes if there are any."""
    kinds: dict[str, list[Node]] = {}
    for node in lab_state.nodes_with_gpu():
        kinds.setdefault(node.gpu_name, []).append(node)
    held = prices([*GPUS, *kinds])
    groups: dict[str, Choices] = {}
    for gpu in GPUS.values():
        groups.setdefault(gpu.family, []).append((gpu.name, _gpu_label(gpu, held[gpu.name])))
    local: Choices = [
        (local_gpu(kind), _kind_label(nodes, held[key_of(kind)])) for kind, nodes in kinds.items()
    ]
    return [(name, choices) for name, choices in ({"This lab": local} | groups).items() if choices]


def compared_gpus() -> Choices:
    """The names of the catalogue's GPUs, family by family."""
    families = by_family(GPUS.values())
    return [(gpu.name, short_name(gpu.display_name)) for gpus in families.values() for gpu in gpus]


def software_choices(offered: Offered, chosen: str = "") -> Choices:
    """The lab's own versions, then those of its environments.

    Args:
        offered: Versions by the name of the environment.
        chosen: Offered too, so that a stored analysis with other versions is shown as it is.
    """
    own = _own_versions(offered)
    names = dict.fromkeys([*sorted(filter(None, offered)), *([chosen] if chosen else [])])
    labels = [(name, _software_label(name)) for name in names]
    return [("", f"The lab's own: {software.format_versions(own)}"), *labels]


def compared_software(offered: Offered) -> Choices:
    """The lab's own versions by number, and those of its environments; none without the latter."""
    others = sorted(filter(None, offered))
    if not others:
        return []
    own = {name: number.partition("+")[0] for name, number in _own_versions(offered).items()}
    return [(name, _software_label(name)) for name in (software.as_text(own), *others)]


def _own_versions(offered: Offered) -> dict[str, str]:
    known = offered.get("") or software.installed()
    return {name: known[name] for name in _NAMED if name in known}


def _software_label(name: str) -> str:
    try:
        return software.format_versions(software.parse(name))
    except InvalidInput:  # typed into an address
        return name


def _kind_label(nodes: Sequence[Node], price: HeldPrice) -> str:
    first, names = nodes[0], ", ".join(node.name for node in nodes)
    parts = [first.gpu_name, gib(first.gpu_total_bytes), _per_hour(price)]
    return " · ".join([part for part in parts if part] + [f"measured on {names}"])


def _gpu_label(gpu: Gpu, price: HeldPrice) -> str:
    parts = [gpu.display_name, gib(gpu.total_bytes), _per_hour(price)]
    return " · ".join(filter(None, parts))


def _per_hour(price: HeldPrice) -> str:
    if price.usd is None:
        return ""
    return f"{usd(price.usd)}/h" + (", your lab's price" if price.is_the_labs else "")
