"""The form of a new analysis; the engine validates its values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from types import MappingProxyType
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import InMemoryUploadedFile, UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.db import transaction
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from analyses import services
from analyses.formatting import exact, plain_number
from analyses.lab import LAB_DEFAULTS, lab_assumptions, lab_settings
from analyses.models import Analysis
from analyses.pages.history.labels import add_tags
from analyses.pages.new.combinations import combinations
from analyses.pages.new.questions import USUAL_PRECISION, Question, usual_precision
from analyses.pages.new.widgets import (
    OTHER_MODEL,
    ModelSelect,
    area,
    gpu_choices,
    input_for,
    model_choices,
    model_facts,
    number,
    preset_choices,
    select,
    size_help,
    software_choices,
    text,
    tick,
    ticks,
    timm_names,
)
from engine.errors import InvalidInput
from engine.fields import Field, Group
from engine.gpus import ANY, GPUS, LOCAL
from engine.models.config import LARGEST_CONFIG_BYTES
from engine.models.presets import PRESETS
from engine.models.tasks import SIZES
from engine.request import DEFAULTS, FIELDS, AnalysisRequest, usual_values
from engine.workload import OWN_CONFIG, Workload

CONFIG_FILE = "config_file"
"""The file input beside the field ``config``; an uploaded file becomes that field's text."""

KEPT_BYTES = LARGEST_CONFIG_BYTES + 1
"""One more than allowed, so that the engine sees that a file is too large."""

_LONGEST_LINKED = 500
"""Characters of a value in a link to the form."""


BATCH_TO_CHECK = "batch_to_check"
"""Stands for the current batch where the question is whether it fits."""

_TRAINED = (
    "precision", "optimizer", *SIZES, "lora_rank", "quantization", "gradient_checkpointing",
)  # fmt: skip
NO_BATCH = "no_batch"
"""The box that stands for a current batch that there is not."""

_LIMITS = ("most_usd_per_hour", "most_hours_per_million")
_WHERE = ("gpu", BATCH_TO_CHECK, "current_batch_size", NO_BATCH, *_LIMITS)
"""The fields that are always in sight; the others are folded."""

_OF_ONE_GPU = ("price_per_hour_usd", "memory_limit_bytes")

_USUALLY = "Usual is bf16-mixed where the GPU has bf16, else fp16-mixed."

MOST_COMPARED = 24


@dataclass(frozen=True)
class FieldGroup:
    """Fields under a title."""

    key: Group
    title: str
    fields: list[forms.BoundField]


class AnalysisForm(forms.Form):
    """A new analysis as raw text; :meth:`submit` has the engine check it.

    The fields are those of :data:`engine.request.FIELDS`, in that order, by which the first error
    is found. A model that is no preset has two inputs: its ID and its config. The question decides
    which fields count.
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
        self.fields |= self._question_inputs()
        self._offer_software()
        chosen = str(self["model"].value())
        for name in SIZES:
            self.fields[name].help_text = size_help(chosen, name)
        lab = lab_settings()
        self._usual = {name: str(value) for name, value in DEFAULTS.items()}
        for name in LAB_DEFAULTS:
            self._usual[name] = plain_number(getattr(lab, name))
            value = exact(getattr(lab, name))
            self.fields[name].help_text += f" Your lab's default: {value}."
            self.fields[name].widget.attrs["placeholder"] = value

    def _question_inputs(self) -> dict[str, forms.Field]:
        precision, current = FIELDS["precision"], FIELDS["current_batch_size"]
        precisions = precision.choices
        one_each = "Choose none to use the one above."
        return {
            "ask": forms.CharField(
                required=False,
                widget=forms.RadioSelect(choices=[(one, one.label) for one in Question]),
            ),
            BATCH_TO_CHECK: number("Batch to check (samples)", "Samples per step, per GPU.", "16"),
            current.name: number(
                current.label_with_unit, current.described.help, current.default_text
            ),
            NO_BATCH: tick(
                "I have no batch yet",
                "You get one to start with; no speedup or savings are claimed.",
            ),
            "precision": select(
                precision.label,
                [(USUAL_PRECISION, "usual for the GPU"), *precisions],
                f"{_USUALLY} {precision.described.help}",
            ),
            "compared_models": ticks("Models", preset_choices(), one_each),
            "compared_precisions": ticks(
                "Precisions", [(value, value) for value, _ in precisions], one_each
            ),
            "compared_gpus": ticks(
                "GPUs", [(gpu.name, gpu.display_name) for gpu in GPUS.values()], one_each
            ),
        }

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

    @property
    def question(self) -> Question:
        asked = str(self["ask"].value() or "")
        return Question(asked) if asked in list(Question) else Question.BATCH

    def submit(self, owner: User) -> list[Analysis]:
        """Submit the analysis, or all that are compared; none if the form now has errors."""
        try:
            if self.question is Question.COMPARE:
                return self._submit_compared(owner)
            return [services.submit(owner, self.raw_fields())]
        except InvalidInput as error:
            self.add_messages(error)
            return []

    def _submit_compared(self, owner: User) -> list[Analysis]:
        """Submit one analysis for each model, precision and GPU, all or none.

        Raises:
            InvalidInput: With the messages of the first that is wrong, and which one that is.
        """
        varied = {
            name: self.cleaned_data[f"compared_{name}s"] or [self.cleaned_data[name]]
            for name in ("model", "precision", "gpu")
        }
        each = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
        if not 2 <= len(each) <= MOST_COMPARED:
            counts = " × ".join(str(len(values)) for values in varied.values())
            message = f"{counts} (models × precisions × GPUs) make {len(each)}; choose 2 to"
            raise InvalidInput({"compared_gpus": f"{message} {MOST_COMPARED}"})
        analyses = []
        with transaction.atomic():
            for changes in each:
                try:
                    analyses.append(services.submit(owner, self.raw_fields(changes)))
                except InvalidInput as error:
                    which = " · ".join(changes.values())
                    wrong = {name: f"{which}: {text}" for name, text in error.fields.items()}
                    raise InvalidInput(wrong) from error
            add_tags(analyses, [f"comparison-{analyses[0].pk}"])
        return analyses

    def add_messages(self, error: InvalidInput) -> None:
        """Show the engine's messages at their fields."""
        for name, message in error.fields.items():
            self.add_error(self._place_of(name), f"{message[:1].upper()}{message[1:]}.")

    def raw_fields(self, changes: Mapping[str, str] = MappingProxyType({})) -> dict[str, object]:
        """The typed values, without the fields that do not apply and are hidden on the page.

        A value left in one of them is not the user's mistake.

        Args:
            changes: Instead of what was typed.
        """
        given = {**self.cleaned_data, **changes}
        given = {name: given[name] for name in (*FIELDS, "other_model", BATCH_TO_CHECK, NO_BATCH)}
        other_model, config = given.pop("other_model"), given.pop("config")
        checked, has_none = given.pop(BATCH_TO_CHECK), given.pop(NO_BATCH)
        if self.question is Question.GPU:
            given |= dict.fromkeys(_OF_ONE_GPU, "") | {"gpu": ANY}
        else:
            given |= dict.fromkeys(_LIMITS, "")
        if self.question is Question.FIT:
            given["current_batch_size"] = checked
        elif has_none or self.question is Question.GPU:  # each GPU has its own best batch
            given["current_batch_size"] = None
        if given["precision"] == USUAL_PRECISION:
            given["precision"] = usual_precision(given["gpu"])
        if not given["gpu"].startswith(LOCAL):
            del given["compile"]
        if given["model"] == OTHER_MODEL:
            return given | {"model": other_model, "config": config}
        preset = PRESETS.get(given["model"])
        for name in SIZES:
            if preset and preset.limits_for_any(name) is None:
                del given[name]
        return given

    def _place_of(self, name: str) -> str | None:
        """The input that shows the messages of an engine's field; ``None``: above the form."""
        if name == "current_batch_size" and self.question is Question.FIT:
            return BATCH_TO_CHECK
        if name == "model" and self.cleaned_data["model"] == OTHER_MODEL:
            return "other_model"
        return name if name in self.fields else None

    def timm_names(self) -> list[str]:
        return timm_names()

    def combinations(self) -> list[dict[str, object]]:
        return combinations()

    def model_facts(self) -> str:
        return model_facts(str(self["model"].value()))

    def how_trained(self) -> list[forms.BoundField]:
        return [self[name] for name in _TRAINED]

    def where(self) -> list[forms.BoundField]:
        return [self[name] for name in _WHERE]

    def compared(self) -> list[forms.BoundField]:
        return [self[f"compared_{name}"] for name in ("models", "precisions", "gpus")]

    def advanced(self) -> list[FieldGroup]:
        """The fields that are rarely changed, in their groups."""
        groups: dict[Group, list[forms.BoundField]] = {}
        for name, described in FIELDS.items():
            if described.group is not Group.MODEL and name not in (*_TRAINED, *_WHERE):
                groups.setdefault(described.group, []).append(self[name])
        return [FieldGroup(key, key.label, fields) for key, fields in groups.items()]

    def advanced_is_open(self) -> bool:
        """Whether a folded field has an error, or a value other than its default."""
        shown = [field for group in self.advanced() for field in group.fields]
        return any(
            field.errors or (field.value() or "") not in ("", self._usual[field.name])
            for field in shown
        )

    def focus_first_error(self) -> None:
        for name in self.fields:
            if name in self.errors:
                self.fields[name].widget.attrs["autofocus"] = True
                return


# The values that the form starts with


def default_values() -> dict[str, str]:
    """The values of an empty form: BERT on an A10 in its usual precision, the lab's defaults."""
    request = AnalysisRequest(Workload("bert"), gpu="a10", assumptions=lab_assumptions())
    values = values_of(request.to_dict())
    return values | {"sequence_length": "", "batch_multiple": "", "precision": USUAL_PRECISION}


def values_of(request: Mapping[str, Any]) -> dict[str, str]:
    """A stored request as the text of the fields; rare ones are empty at their defaults."""
    usual = usual_values(request)
    asked = Question.GPU if request.get("gpu") == ANY else Question.BATCH
    values = {"other_model": "", "ask": str(asked)}
    values[NO_BATCH] = "on" if request.get("current_batch_size", 1) is None else ""
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
    if not changes:
        return dict(values)
    form = AnalysisForm()
    changed = {
        name: typed
        for name, typed in changes.items()
        if name in form.fields and _can_show(form.fields[name], typed)
    }
    if changed.get("current_batch_size"):
        changed.setdefault(NO_BATCH, "")
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
