"""The form of a new analysis; the engine validates its values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import InMemoryUploadedFile, UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from analyses import services
from analyses.formatting import exact, plain_number
from analyses.lab import LAB_DEFAULTS, lab_assumptions, lab_settings
from analyses.models import Analysis
from analyses.pages.new.widgets import (
    OTHER_MODEL,
    SIZES,
    ModelSelect,
    area,
    gpu_choices,
    input_for,
    model_choices,
    model_facts,
    select,
    size_help,
    software_choices,
    text,
)
from engine.errors import InvalidInput
from engine.fields import Field, Group
from engine.gpus import LOCAL
from engine.models.config import LARGEST_CONFIG_BYTES
from engine.models.presets import PRESETS
from engine.request import DEFAULTS, FIELDS, AnalysisRequest, usual_values
from engine.workload import OWN_CONFIG, Workload

CONFIG_FILE = "config_file"
"""The file input beside the field ``config``; an uploaded file becomes that field's text."""

KEPT_BYTES = LARGEST_CONFIG_BYTES + 1
"""One more than allowed, so that the engine sees that a file is too large."""

_LONGEST_LINKED = 500
"""Characters of a value in a link to the form."""


@dataclass(frozen=True)
class FieldGroup:
    """Fields under a title; ``is_open`` if a folded group has a value or an error to show."""

    key: Group
    title: str
    fields: list[forms.BoundField]
    is_open: bool
    folded: list[FieldGroup] = field(default_factory=list)


class AnalysisForm(forms.Form):
    """A new analysis as raw text; :meth:`submit` has the engine check it.

    The fields are those of :data:`engine.request.FIELDS`, in that order, by which the first error
    is found. A model that is no preset has two inputs: its ID and its config.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asks_hub: bool = settings.ASKS_HUB
        self.fields |= self._model_inputs()
        for name, described in FIELDS.items():
            if described.group is not Group.MODEL:
                self.fields[name] = input_for(described)
        gpu = FIELDS["gpu"]
        self.fields["gpu"] = select(gpu.label, gpu_choices(), gpu.described.help)
        self._offer_software()
        chosen = str(self["model"].value())
        for name in SIZES:
            self.fields[name].help_text = size_help(chosen, name)
        lab = lab_settings()
        for name in LAB_DEFAULTS:
            value = exact(getattr(lab, name))
            self.fields[name].help_text += f" Your lab's default: {value}."
            self.fields[name].widget.attrs["placeholder"] = value

    def _offer_software(self) -> None:
        described = FIELDS["software"]
        self.fields["software"] = select(described.label, [], described.described.help)
        chosen = str(self["software"].value() or "")
        self.fields["software"].widget.choices = software_choices(chosen)

    def _model_inputs(self) -> dict[str, forms.Field]:
        config = FIELDS["config"]
        about_id = (
            "Only its config.json is fetched: no weights, no code. With a config below, any name "
            "will do."
            if self.asks_hub
            else "This lab does not use the Hugging Face Hub (MEMORYMARK_HUB=off). Add the config "
            "below, under any name."
        )
        return {
            "model": forms.CharField(required=False, widget=ModelSelect(choices=model_choices())),
            "other_model": text("Hugging Face ID", about_id, "org/name"),
            "config": area(
                config.label,
                config.described.help,
                '{"model_type": "bert", "hidden_size": 768, …}',
            ),
        }

    def submit(self, owner: User) -> Analysis | None:
        """Submit the analysis; ``None`` if the form now has errors."""
        try:
            return services.submit(owner, self.raw_fields())
        except InvalidInput as error:
            self.add_messages(error)
            return None

    def add_messages(self, error: InvalidInput) -> None:
        """Show the engine's messages at their fields."""
        for name, message in error.fields.items():
            self.add_error(self._place_of(name), f"{message[:1].upper()}{message[1:]}.")

    def raw_fields(self) -> dict[str, object]:
        """The typed values, without the fields that do not apply and are hidden on the page.

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
        """The input that shows the messages of an engine's field; ``None``: above the form."""
        if name == "model" and self.cleaned_data["model"] == OTHER_MODEL:
            return "other_model"
        return name if name in self.fields else None

    def model_facts(self) -> str:
        return model_facts(str(self["model"].value()))

    def sections(self) -> list[FieldGroup]:
        """The groups below the model, each with its rare fields folded at the end."""
        sections: list[FieldGroup] = []
        for key in Group:
            names = [name for name, described in FIELDS.items() if described.group is key]
            is_open = any(map(self._has_something_to_show, names))
            group = FieldGroup(key, key.label, [self[name] for name in names], is_open)
            if key.is_rare:
                sections[-1].folded.append(group)
            else:
                sections.append(group)
        return sections[1:]

    def _has_something_to_show(self, name: str) -> bool:
        """Whether a field has an error, or a value other than its default."""
        shown = self[name]
        value = shown.value() or ""
        return bool(shown.errors) or value not in ("", str(DEFAULTS.get(name)))

    def focus_first_error(self) -> None:
        for name in self.fields:
            if name in self.errors:
                self.fields[name].widget.attrs["autofocus"] = True
                return


# The values that the form starts with


def default_values() -> dict[str, str]:
    """The values of an empty form: BERT on an A10, in multiples of 8, with the lab's defaults.

    Multiples of 8 fill the tensor cores' tiles and are easier to read.
    """
    request = AnalysisRequest(
        Workload("bert"),
        gpu="a10",
        batch_multiple=8,
        assumptions=lab_assumptions(),
    )
    return values_of(request.to_dict()) | {"sequence_length": ""}


def values_of(request: Mapping[str, Any]) -> dict[str, str]:
    """A stored request as the text of the fields; rare ones are empty at their defaults."""
    usual = usual_values(request)
    values = {"other_model": ""}
    for name, described in FIELDS.items():
        value = request.get(name)
        is_usual = described.group.is_rare and value == usual.get(name)
        values[name] = "" if is_usual else _typed(value, described)
    if request["model"] in PRESETS:
        return values
    config = request.get("config")
    return values | {
        "model": OTHER_MODEL,
        "other_model": "" if request["model"] == OWN_CONFIG else request["model"],
        "config": json.dumps(config, indent=2) if config else "",
    }


def with_changes(values: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The values with those in a link, except what a field cannot show."""
    form = AnalysisForm()
    changed = {
        name: typed
        for name, typed in changes.items()
        if name in form.fields and _can_show(form.fields[name], typed)
    }
    return {**values, **changed}


def _can_show(field: forms.Field, typed: str) -> bool:
    if isinstance(field, forms.BooleanField):
        return typed in ("", "on")
    if isinstance(field.widget, forms.Select | forms.RadioSelect):
        return typed in _offered(field.widget.choices)
    return len(typed) <= _LONGEST_LINKED


def _offered(choices: Iterable[Any]) -> Iterator[str]:
    for value, label in choices:
        if isinstance(label, list | tuple):
            yield from _offered(label)
        else:
            yield str(value)


def _typed(value: object, described: Field) -> str:
    if described.is_switch and described.choices and value is not None:
        return str(value).lower()
    if value is None or value is False:
        return ""
    if value is True:
        return "on"
    return plain_number(value) if isinstance(value, float) else str(value)


# An uploaded config


def with_upload(fields: QueryDict, files: MultiValueDict[str, UploadedFile[bytes]]) -> QueryDict:
    """The fields as sent, with the text of an uploaded config as the field ``config``.

    So it survives an invalid form: a browser does not send the file again.
    """
    upload = files.get(CONFIG_FILE)
    if upload is None:
        return fields
    filled = fields.copy()
    filled["config"] = upload.read().decode(errors="replace")
    return filled


class ConfigUploadHandler(FileUploadHandler):
    """Keeps the beginning of each file in memory and drops the rest."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.kept = BytesIO()

    def receive_data_chunk(self, raw_data: bytes, _start: int) -> None:
        self.kept.write(raw_data[: KEPT_BYTES - self.kept.tell()])

    def file_complete(self, _file_size: int) -> UploadedFile[bytes]:
        size = self.kept.tell()
        self.kept.seek(0)
        return InMemoryUploadedFile(
            self.kept, self.field_name, self.file_name or "", self.content_type or "", size,
            self.charset, self.content_type_extra,
        )  # fmt: skip
