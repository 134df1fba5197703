"""The models page: every model type that transformers has, what is predicted of it and what not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from django import forms
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import replace_url

from analyses.pages.access import MemberRequest
from engine.models.architectures import ARCHITECTURES
from engine.models.coverage import Coverage, ModelType, checked_with, model_types
from engine.models.presets import PRESETS, Preset
from engine.models.tasks import Task, spoken

PREDICTED, REFUSED = "predicted", "refused"
_MAX_SEARCH_LENGTH = 200
PAGE_SIZE = 25
"""Model types on a page: six screens of a phone."""

_LINES = str.maketrans("_", "-")


class ModelTypeForm(forms.Form):
    """The types and tasks to list; every field is optional and part of the address."""

    q = forms.CharField(
        label="Search",
        required=False,
        max_length=_MAX_SEARCH_LENGTH,
        widget=forms.TextInput(
            attrs={
                "type": "search",
                "autocomplete": "off",
                "spellcheck": "false",
                "placeholder": "llama, gpt neo, speech",
                "data-key": "/",
                "data-key-label": "Search",
            }
        ),
    )
    task = forms.ChoiceField(
        label="Task",
        required=False,
        choices=[("", "any"), *((task.value, spoken(task)) for task in Task)],
    )
    only = forms.ChoiceField(
        label="Support",
        required=False,
        choices=[("", "any"), (PREDICTED, "predicted"), (REFUSED, "not predicted")],
    )


@dataclass(frozen=True)
class ModelTypeRow:
    """A model type, what it reads, and its listed tasks; each refused one has its reason."""

    name: str
    reads: str
    predicted: list[str]
    refused: list[tuple[str, str]]
    presets: list[Preset]
    needs: tuple[str, ...]


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
def models(request: MemberRequest) -> HttpResponse:
    """The page; for htmx its results."""
    form = ModelTypeForm(request.GET)
    wanted = form.cleaned_data if form.is_valid() else {}
    rows = list(_rows(**wanted)) if wanted else []
    query = urlencode({name: value for name, value in wanted.items() if value})
    context = {
        "form": form,
        "page": Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page")),
        "query": query,
        "pair_count": sum(len(row.predicted) + len(row.refused) for row in rows),
        "is_filtered": any(wanted.values()) or not wanted,
    }
    if request.htmx.target == "results":
        response = render(request, "models/_results.html", context)
        return replace_url(response, f"{request.path}?{query}" if query else request.path)
    context |= {
        "coverage": Coverage.of(ARCHITECTURES.values()),
        "checked_with": checked_with(),
        "nav": "models",
    }
    return render(request, "models/models.html", context)


def _rows(q: str, task: str, only: str) -> Iterator[ModelTypeRow]:
    words = _searched(q).split()
    for one in model_types():
        row = ModelTypeRow(
            one.name,
            ", ".join(kind.replace("-", " and ") for kind in one.kinds),
            [spoken(t) for t in one.tasks if task in ("", t) and only != REFUSED],
            [
                (spoken(t), w)
                for t, w in one.refused.items()
                if task in ("", t) and only != PREDICTED
            ],
            [PRESETS[name] for name in one.presets],
            one.needs,
        )
        text = _text(one)
        if (row.predicted or row.refused) and all(word in text for word in words):
            yield row


def _text(one: ModelType) -> str:
    """The text that a search for the type looks in."""
    presets = [PRESETS[name] for name in one.presets]
    names = [f"{preset.name} {preset.display_name} {preset.hub_id}" for preset in presets]
    return _searched(" ".join([one.name, *one.kinds, *one.tasks, *one.refused, *names]))


def _searched(text: str) -> str:
    return text.lower().translate(_LINES)
