"""The values that the form starts with: by default, of an earlier analysis, or in a link."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from django import forms

from analyses.formatting import plain_number
from analyses.lab.settings import lab_assumptions
from analyses.pages.new.form import BATCH_OF, NO_BATCH, AnalysisForm
from analyses.pages.new.questions import Question
from analyses.pages.new.widgets import OTHER_MODEL
from engine.core.choices import Goal
from engine.core.fields import Field
from engine.gpus import ANY
from engine.interface.first_request import FIRST_REQUEST
from engine.interface.goals import goal_of
from engine.interface.request import FIELDS, usual_values
from engine.interface.workload import OWN_CONFIG
from engine.models.presets import PRESETS

_MAX_LINKED_LENGTH = 500
"""Characters of a value in a link to the form."""


def default_values() -> dict[str, str]:
    """The values of an empty form: what an engine is warm for, with the lab's assumptions."""
    request = replace(FIRST_REQUEST, assumptions=lab_assumptions())
    values = values_of(request.to_dict())
    return values | {"sequence_length": "", "batch_multiple": ""}


def values_of(request: Mapping[str, Any]) -> dict[str, str]:
    """A stored request as the text of the fields; rare ones are empty at their defaults."""
    usual = usual_values(request)
    goal = goal_of(request)
    asked = Question.GPU if request.get("gpu") == ANY else Question(goal)
    values = {"other_model": "", "ask": str(asked)}
    values[NO_BATCH] = "on" if request.get("current_batch_size", 1) is None else ""
    for name, described in FIELDS.items():
        value = request.get(name)
        is_usual = described.group.is_rare and value == usual.get(name)
        values[name] = "" if is_usual else _typed(value, described)
    if goal is not Goal.BATCH:
        values[BATCH_OF[asked]] = values["current_batch_size"]
    if request["model"] in PRESETS:
        return values
    config = request.get("config")
    return values | {
        "model": OTHER_MODEL,
        "other_model": "" if request["model"] == OWN_CONFIG else request["model"],
        "config": json.dumps(config, indent=2) if config else "",
    }


def typed_values(fields: Mapping[str, Any]) -> dict[str, str]:
    """Some fields as the text of their inputs, whether they are right or not."""
    values = {name: _typed(value, FIELDS[name]) for name, value in fields.items()}
    model = values.get("model", "")
    return values if model in PRESETS else values | {"model": OTHER_MODEL, "other_model": model}


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
    return len(typed) <= _MAX_LINKED_LENGTH


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
