"""Filters and order of analyses: one filter set for the page, exports and API."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet

from analyses.formatting import model_name
from analyses.lab.projects import NO_PROJECT, projects_in_use
from analyses.models import OUTCOMES, Analysis, Project, with_outcome
from analyses.pages.history import columns, in_use
from analyses.pages.history.groups import GROUPED_BY
from analyses.pages.history.labels import tags_in_use
from analyses.pages.history.search import (
    SearchField,
    latest_first,
    matching,
    since,
    until,
)
from analyses.pages.history.terms import Key
from engine.versions.software import format_versions, parse

MAX_SEARCH_LENGTH = 200
"""Characters; each term of it costs a query."""

Choices = list[tuple[str, str]]

ROOMY = "roomy"
"""The density of rows that show all their settings, on several lines; usual is one line."""

YES_OR_NO: Choices = [("yes", "yes"), ("no", "no")]


class SearchFilter(django_filters.CharFilter):  # type: ignore[misc]  # it has no types
    """A text of terms, such as ``model:vit adopted``."""

    field_class = SearchField


def _one_of(values: Iterable[str]) -> dict[str, str]:
    """The error message for a value that is no choice."""
    return {"invalid_choice": f"Choose one of {', '.join(values)}."}


class AnalysisFilter(django_filters.FilterSet):  # type: ignore[misc]  # it has no types
    """The filters and the sort order in an address.

    A value that no analysis has finds nothing; an impossible one, such as an unknown status, is an
    error.
    """

    q = SearchFilter(
        label="Search",
        method="search",
        max_length=MAX_SEARCH_LENGTH,
        widget=forms.TextInput(attrs={"data-key": "/", "data-key-label": "Search"}),
    )
    member = django_filters.CharFilter(label="Member", field_name="owner__username")
    model = django_filters.CharFilter(label="Model", field_name="model")
    gpu = django_filters.CharFilter(label="GPU", method="on_gpu")
    status = django_filters.ChoiceFilter(
        label="Status",
        choices=OUTCOMES,
        empty_label="any",
        method="with_outcome",
        error_messages=_one_of(name for name, _ in OUTCOMES),
    )
    precision = django_filters.CharFilter(label="Precision", field_name="precision")
    software = django_filters.CharFilter(label="Software", field_name="software")
    project = django_filters.CharFilter(label="Project", method="of_project")
    tag = django_filters.CharFilter(label="Tag", method="with_tag")
    adopted = django_filters.ChoiceFilter(
        label="Adopted",
        choices=YES_OR_NO,
        empty_label="any",
        method="is_adopted",
        error_messages=_one_of(value for value, _ in YES_OR_NO),
    )
    date_from = django_filters.DateFilter(label="From", method="not_before")
    date_to = django_filters.DateFilter(label="To", method="not_after")
    sort = django_filters.ChoiceFilter(
        label="Sort",
        choices=list(columns.SORTS.items()),
        method="in_order",
        error_messages=_one_of(columns.SORTS),
    )

    def search(self, analyses: QuerySet[Analysis], _name: str, text: str) -> QuerySet[Analysis]:
        """Keep analyses that match every term; a plain word may occur anywhere."""
        return matching(analyses, text)

    def on_gpu(self, analyses: QuerySet[Analysis], _name: str, gpu: str) -> QuerySet[Analysis]:
        """Keep analyses on one GPU: a name of the catalogue, or ``local:NAME`` for a node's."""
        kind, _, measured_gpu = gpu.partition(":")
        if measured_gpu:
            return analyses.filter(gpu=kind, measured_gpu=measured_gpu)
        return analyses.filter(gpu=gpu)

    def with_outcome(
        self, analyses: QuerySet[Analysis], _name: str, outcome: str
    ) -> QuerySet[Analysis]:
        return analyses.filter(with_outcome(outcome))

    def of_project(self, analyses: QuerySet[Analysis], _name: str, name: str) -> QuerySet[Analysis]:
        """Keep analyses of one project, or with ``none`` those without any."""
        if name.lower() == NO_PROJECT:
            return analyses.filter(project=None)
        return analyses.filter(project__in=list(Project.objects.filter(name__iexact=name)))

    def with_tag(self, analyses: QuerySet[Analysis], _name: str, tag: str) -> QuerySet[Analysis]:
        return analyses.filter(tags__name=tag.lower())

    def is_adopted(self, analyses: QuerySet[Analysis], _name: str, word: str) -> QuerySet[Analysis]:
        return analyses.filter(adopted_at__isnull=word == "no")

    def not_before(self, analyses: QuerySet[Analysis], _name: str, day: date) -> QuerySet[Analysis]:
        return latest_first(analyses.filter(since(day)))

    def not_after(self, analyses: QuerySet[Analysis], _name: str, day: date) -> QuerySet[Analysis]:
        return latest_first(analyses.filter(until(day)))

    def in_order(self, analyses: QuerySet[Analysis], _name: str, sort: str) -> QuerySet[Analysis]:
        return columns.in_order(analyses, sort)


class HistoryFilter(AnalysisFilter):
    """The same with columns, groups and density of rows, for the page and its exports."""

    columns = django_filters.MultipleChoiceFilter(
        label="Columns",
        choices=[(column.key, column.title) for column in columns.COLUMNS if not column.is_fixed],
        method="unchanged",
        widget=forms.CheckboxSelectMultiple,
    )
    group = django_filters.ChoiceFilter(
        label="Group by",
        choices=[(name, name) for name in GROUPED_BY],
        method="unchanged",
        error_messages=_one_of(GROUPED_BY),
    )
    density = django_filters.ChoiceFilter(
        label="Rows",
        choices=[(ROOMY, "Roomy")],
        empty_label="Dense",
        method="unchanged",
        error_messages=_one_of([ROOMY]),
    )

    def unchanged(self, analyses: QuerySet[Analysis], _name: str, _value: Any) -> Any:
        """Columns, groups and density hide no analysis."""
        return analyses


def offer_choices(form: forms.Form) -> None:
    """Turn the fields of the filter form into choices of what the lab has."""
    for name, choices in {
        "member": [(name, name) for name in in_use.members()],
        "model": [(model, model_name(model)) for model in in_use.models()],
        "gpu": [(in_use.gpu_key(*gpu), in_use.gpu_title(*gpu)) for gpu in in_use.gpus()],
        "precision": [(name, name) for name in in_use.precisions()],
        "software": [(name, format_versions(parse(name))) for name in in_use.software()],
        "project": [
            (NO_PROJECT, NO_PROJECT),
            *((name, name) for name in projects_in_use()),
        ],
        "tag": [(name, name) for name in tags_in_use()],
    }.items():
        _offer(form, name, choices)
    for name in ("date_from", "date_to"):
        form.fields[name].widget.input_type = "date"
    for name in ("sort", "group"):
        form.fields[name].widget = forms.HiddenInput()


def offered(form: forms.Form) -> dict[Key, list[str]]:
    """The choices that :func:`offer_choices` offers, as values of search terms."""
    return {
        key: [value.rpartition(":")[2] for value, _ in form.fields[key].widget.choices if value]
        for key in (Key.MODEL, Key.MEMBER, Key.GPU, Key.STATUS, Key.PRECISION, Key.PROJECT, Key.TAG)
    }


def _offer(form: forms.Form, name: str, choices: Choices) -> None:
    now = form[name].value() or ""
    if now and now not in dict(choices):  # it is in the address, so show it here too
        choices = [*choices, (now, now)]
    ordered = sorted(choices, key=lambda choice: choice[1].lower())
    form.fields[name].widget = forms.Select(choices=[("", "any"), *ordered])
