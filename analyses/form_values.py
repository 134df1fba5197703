"""What the form of a new analysis is filled with: an earlier question, a link, an uploaded file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from analyses.form_fields import OTHER_MODEL
from analyses.formatting import plain_number
from analyses.forms import FOLDED, AnalysisForm
from analyses.lab.selectors import lab_settings
from analyses.question import usual_values
from engine.models.presets import PRESETS
from engine.request import AnalysisRequest, Assumptions
from engine.workload import OWN_CONFIG, Workload

CONFIG_FILE = "config_file"
"""The file input beside the field ``config``; what is uploaded becomes that field's text."""

_LONGEST_LINKED = 500
"""Characters of a value in a link to the form."""

_RARE = {name for _, names in FOLDED.values() for name in names}


def with_upload(fields: QueryDict, files: MultiValueDict[str, UploadedFile[bytes]]) -> QueryDict:
    """The fields as sent, with the text of an uploaded config in place of the field ``config``.

    So it comes back with the form where something is wrong: a browser sends no file twice.
    """
    upload = files.get(CONFIG_FILE)
    if upload is None:
        return fields
    filled = fields.copy()
    filled["config"] = upload.read().decode(errors="replace")
    return filled


def default_values() -> dict[str, str]:
    """What the empty form proposes: BERT on an A10, in multiples of 8, else the lab's defaults.

    Multiples of 8 fill the tensor cores' tiles, and a person reads "288" more easily than "289".
    """
    lab = lab_settings()
    assumed = Assumptions(lab.hours_per_run, lab.runs_per_year)
    request = AnalysisRequest(
        Workload(model="bert"), gpu="a10", batch_multiple=8, assumptions=assumed
    )
    return values_of(request.to_dict()) | {"sequence_length": ""}


def values_of(request: Mapping[str, Any]) -> dict[str, str]:
    """A stored request as the text of the form's fields; the rare ones empty at their defaults."""
    usual = usual_values(request)
    values = {
        name: ""
        if name in _RARE and request.get(name) == usual.get(name)
        else _typed(request.get(name))
        for name in AnalysisForm.base_fields
    }
    if request["model"] in PRESETS:
        return values
    own_name = request["model"] != OWN_CONFIG
    config = request.get("config")
    return values | {
        "model": OTHER_MODEL,
        "other_model": request["model"] if own_name else "",
        "config": json.dumps(config, indent=2) if config else "",
    }


def with_changes(values: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The values of a form with some changed, as a link asks for it; what cannot be is left out."""
    form = AnalysisForm()
    changed = {
        name: text
        for name, text in changes.items()
        if name in form.fields and _can_be(form.fields[name], text)
    }
    return {**values, **changed}


def _can_be(field: forms.Field, text: str) -> bool:
    """Whether a field can show this text."""
    if isinstance(field, forms.BooleanField):
        return text in ("", "on")
    if isinstance(field.widget, forms.Select | forms.RadioSelect):
        return text in _offered(field.widget.choices)
    return len(text) <= _LONGEST_LINKED


def _offered(choices: Iterable[Any]) -> Iterator[str]:
    """The values of choices, in groups or not."""
    for value, label in choices:
        if isinstance(label, list | tuple):
            yield from _offered(label)
        else:
            yield str(value)


def _typed(value: object) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return "on"
    return plain_number(value) if isinstance(value, float) else str(value)
