"""Which analyses to show and in what order: one filter set for the page, the exports, the API."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from functools import reduce
from operator import or_
from typing import Any

import django_filters
from django import forms
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet

from analyses.history import columns, distinct
from analyses.history.labels import TAGGINGS, tags_in_use
from analyses.models import Analysis, Note, Status
from analyses.question import gpu_name, local_gpu, model_name
from engine.gpus import LOCAL

LONGEST_SEARCH = 200
"""Characters; nobody types more, and each word costs a look into the database."""

Choices = list[tuple[str, str]]

YES_OR_NO: Choices = [("yes", "yes"), ("no", "no")]


class AnalysisFilter(django_filters.FilterSet):  # type: ignore[misc]  # it has no types
    """What is asked for by the fields of an address.

    A value that no analysis has finds nothing; one that cannot be, such as an unknown status, is
    an error.
    """

    q = django_filters.CharFilter(
        label="Search",
        method="search",
        max_length=LONGEST_SEARCH,
        widget=forms.TextInput(attrs={"data-key": "/", "data-key-says": "Search"}),
    )
    member = django_filters.CharFilter(label="Member", field_name="owner__username")
    model = django_filters.CharFilter(label="Model", field_name="model")
    gpu = django_filters.CharFilter(label="GPU", method="on_gpu")
    status = django_filters.ChoiceFilter(label="Status", choices=Status.choices, empty_label="any")
    precision = django_filters.CharFilter(label="Precision", field_name="precision")
    tag = django_filters.CharFilter(label="Tag", method="with_tag")
    adopted = django_filters.ChoiceFilter(
        label="Adopted", choices=YES_OR_NO, empty_label="any", method="is_adopted"
    )
    pushed = django_filters.ChoiceFilter(
        label="Pushed", choices=YES_OR_NO, empty_label="any", method="is_pushed"
    )
    date_from = django_filters.DateFilter(label="From", method="not_before")
    date_to = django_filters.DateFilter(label="To", method="not_after")
    sort = django_filters.ChoiceFilter(
        label="Sort", choices=list(columns.SORTS.items()), method="in_order"
    )

    def search(self, analyses: QuerySet[Analysis], _name: str, text: str) -> QuerySet[Analysis]:
        """Those in which each word is found: in number, model, GPU, member, tags or note."""
        for word in text.split():
            analyses = analyses.filter(_with_word(word.lower()))
        return analyses

    def on_gpu(self, analyses: QuerySet[Analysis], _name: str, gpu: str) -> QuerySet[Analysis]:
        """Those on one kind of GPU: of the catalogue, or ``local:NAME`` for a node's."""
        kind, _, measured_gpu = gpu.partition(":")
        if measured_gpu:
            return analyses.filter(gpu=kind, measured_gpu=measured_gpu)
        return analyses.filter(gpu=gpu)

    def with_tag(self, analyses: QuerySet[Analysis], _name: str, tag: str) -> QuerySet[Analysis]:
        """Those with a tag."""
        return analyses.filter(tags__name=tag.lower())

    def is_adopted(self, analyses: QuerySet[Analysis], _name: str, word: str) -> QuerySet[Analysis]:
        """Those whose recommendation is trained with, or is not."""
        return analyses.filter(adopted_at__isnull=word == "no")

    def is_pushed(self, analyses: QuerySet[Analysis], _name: str, word: str) -> QuerySet[Analysis]:
        """Those that ran elsewhere and were pushed here, or those that the lab has run."""
        return analyses.filter(push__isnull=word == "no")

    def not_before(self, analyses: QuerySet[Analysis], _name: str, day: date) -> QuerySet[Analysis]:
        """Those asked on that day (UTC) or later."""
        return analyses.filter(queued_at__gte=datetime.combine(day, time.min, UTC))

    def not_after(self, analyses: QuerySet[Analysis], _name: str, day: date) -> QuerySet[Analysis]:
        """Those asked on that day (UTC) or earlier."""
        return analyses.filter(queued_at__lte=datetime.combine(day, time.max, UTC))

    def in_order(self, analyses: QuerySet[Analysis], _name: str, sort: str) -> QuerySet[Analysis]:
        """Sorted by a column; see :func:`analyses.history.columns.in_order`."""
        return columns.in_order(analyses, sort)


class HistoryFilter(AnalysisFilter):
    """The same with the columns to show, for what is shown as a table."""

    columns = django_filters.MultipleChoiceFilter(
        label="Columns",
        choices=[(column.key, column.title) for column in columns.COLUMNS if not column.is_fixed],
        method="unchanged",
        widget=forms.CheckboxSelectMultiple,
    )

    def unchanged(self, analyses: QuerySet[Analysis], _name: str, _value: Any) -> Any:
        """Columns hide no analysis."""
        return analyses


def offer_choices(form: forms.Form) -> None:
    """Let the fields of a form of filters be chosen from what the lab has."""
    for name, choices in {
        "member": _members(),
        "model": [(model, model_name(model)) for model in distinct.models()],
        "gpu": [(_gpu_key(*gpu), _gpu_title(*gpu)) for gpu in distinct.gpus()],
        "precision": [(name, name) for name in distinct.precisions()],
    }.items():
        _offer(form, name, choices)
    _offer(form, "tag", [(name, name) for name in tags_in_use()])
    for name in ("date_from", "date_to"):
        form.fields[name].widget.input_type = "date"
    form.fields["q"].widget.input_type = "search"
    form.fields["sort"].widget = forms.HiddenInput()


def _offer(form: forms.Form, name: str, choices: Choices) -> None:
    now = form[name].value() or ""
    if now and now not in dict(choices):  # it stands in the address, so it must stand here too
        choices = [*choices, (now, now)]
    ordered = sorted(choices, key=lambda choice: choice[1].lower())
    form.fields[name].widget = forms.Select(choices=[("", "any"), *ordered])


def _with_word(word: str) -> Q:
    """Where a word is found, with only those places in it that have it: the database scans less."""
    models = [
        model for model in distinct.models() if word in f"{model} {model_name(model)}".lower()
    ]
    members = list(User.objects.filter(username__icontains=word).values_list("pk", flat=True))
    tagged = TAGGINGS.filter(tag__name__icontains=word)
    noted = Note.objects.filter(text__icontains=word)
    places = [Q(model__in=models)] if models else []
    places += [Q(owner__in=members)] if members else []
    places += [
        Q(gpu=gpu, measured_gpu=measured_gpu)
        for gpu, measured_gpu in distinct.gpus()
        if word in _gpu_title(gpu, measured_gpu).lower() or word == gpu
    ]
    places += [Q(pk__in=rows.values("analysis")) for rows in (tagged, noted) if rows.exists()]
    number = word.removeprefix("#")
    if number.isascii() and number.isdigit() and len(number) < 19:
        places.append(Q(pk=int(number)))
    return reduce(or_, places, Q(pk__in=[]))


def _members() -> Choices:
    members = User.objects.filter(Exists(Analysis.objects.filter(owner=OuterRef("pk"))))
    return [(name, name) for name in members.values_list("username", flat=True)]


def _gpu_key(gpu: str, measured_gpu: str) -> str:
    return local_gpu(measured_gpu) if gpu == LOCAL and measured_gpu else gpu


def _gpu_title(gpu: str, measured_gpu: str) -> str:
    return measured_gpu or gpu_name(gpu)
