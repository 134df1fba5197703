"""Which analyses to show, and in what order: one filter set for the page, exports and API."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from functools import reduce
from operator import or_
from typing import Any

import django_filters
from django import forms
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from analyses.formatting import gpu_name, local_gpu, model_name
from analyses.models import Analysis, Note, Status
from analyses.pages.history import columns
from analyses.pages.history.labels import TAGGINGS, tags_in_use
from engine.gpus import LOCAL
from engine.software import in_words, parse

LONGEST_SEARCH = 200
"""In characters; each word of it costs a query."""

Choices = list[tuple[str, str]]

YES_OR_NO: Choices = [("yes", "yes"), ("no", "no")]


_DISTINCT_SQL = """
WITH RECURSIVE found (value) AS (
    SELECT min({column}) FROM {table} WHERE {condition}
    UNION ALL
    SELECT (SELECT min({column}) FROM {table} WHERE {condition} AND {column} > found.value)
    FROM found WHERE found.value IS NOT NULL
)
SELECT value FROM found WHERE value IS NOT NULL
"""


class AnalysisFilter(django_filters.FilterSet):  # type: ignore[misc]  # it has no types
    """The filters and the sort order in an address.

    A value that no analysis has finds nothing; an impossible one, such as an unknown status, is an
    error.
    """

    q = django_filters.CharFilter(
        label="Search",
        method="search",
        max_length=LONGEST_SEARCH,
        widget=forms.TextInput(attrs={"data-key": "/", "data-key-label": "Search"}),
    )
    member = django_filters.CharFilter(label="Member", field_name="owner__username")
    model = django_filters.CharFilter(label="Model", field_name="model")
    gpu = django_filters.CharFilter(label="GPU", method="on_gpu")
    status = django_filters.ChoiceFilter(label="Status", choices=Status.choices, empty_label="any")
    precision = django_filters.CharFilter(label="Precision", field_name="precision")
    software = django_filters.CharFilter(label="Software", field_name="software")
    tag = django_filters.CharFilter(label="Tag", method="with_tag")
    adopted = django_filters.ChoiceFilter(
        label="Adopted", choices=YES_OR_NO, empty_label="any", method="is_adopted"
    )
    pushed = django_filters.ChoiceFilter(
        label="Imported", choices=YES_OR_NO, empty_label="any", method="is_pushed"
    )
    date_from = django_filters.DateFilter(label="From", method="not_before")
    date_to = django_filters.DateFilter(label="To", method="not_after")
    sort = django_filters.ChoiceFilter(
        label="Sort", choices=list(columns.SORTS.items()), method="in_order"
    )

    def search(self, analyses: QuerySet[Analysis], _name: str, text: str) -> QuerySet[Analysis]:
        """Those with every word in their number, model, GPU, member, tags or note."""
        for word in text.split():
            analyses = analyses.filter(_with_word(word.lower()))
        return analyses

    def on_gpu(self, analyses: QuerySet[Analysis], _name: str, gpu: str) -> QuerySet[Analysis]:
        """Those on one GPU: a name of the catalogue, or ``local:NAME`` for a node's."""
        kind, _, measured_gpu = gpu.partition(":")
        if measured_gpu:
            return analyses.filter(gpu=kind, measured_gpu=measured_gpu)
        return analyses.filter(gpu=gpu)

    def with_tag(self, analyses: QuerySet[Analysis], _name: str, tag: str) -> QuerySet[Analysis]:
        return analyses.filter(tags__name=tag.lower())

    def is_adopted(self, analyses: QuerySet[Analysis], _name: str, word: str) -> QuerySet[Analysis]:
        return analyses.filter(adopted_at__isnull=word == "no")

    def is_pushed(self, analyses: QuerySet[Analysis], _name: str, word: str) -> QuerySet[Analysis]:
        """Those that ran elsewhere and were imported, or those run here."""
        return analyses.filter(push__isnull=word == "no")

    def not_before(self, analyses: QuerySet[Analysis], _name: str, day: date) -> QuerySet[Analysis]:
        """Those submitted on that day (UTC) or later."""
        return analyses.filter(queued_at__gte=datetime.combine(day, time.min, UTC))

    def not_after(self, analyses: QuerySet[Analysis], _name: str, day: date) -> QuerySet[Analysis]:
        """Those submitted on that day (UTC) or earlier."""
        return analyses.filter(queued_at__lte=datetime.combine(day, time.max, UTC))

    def in_order(self, analyses: QuerySet[Analysis], _name: str, sort: str) -> QuerySet[Analysis]:
        return columns.in_order(analyses, sort)


class HistoryFilter(AnalysisFilter):
    """The same with the columns to show, for the page and its exports."""

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
    """Turn the fields of the filter form into choices of what the lab has."""
    for name, choices in {
        "member": _members(),
        "model": [(model, model_name(model)) for model in _models_in_use()],
        "gpu": [(_gpu_key(*gpu), _gpu_title(*gpu)) for gpu in _gpus_in_use()],
        "precision": [(name, name) for name in _precisions_in_use()],
        "software": [(name, in_words(parse(name))) for name in _software_in_use()],
    }.items():
        _offer(form, name, choices)
    _offer(form, "tag", [(name, name) for name in tags_in_use()])
    for name in ("date_from", "date_to"):
        form.fields[name].widget.input_type = "date"
    form.fields["q"].widget.input_type = "search"
    form.fields["sort"].widget = forms.HiddenInput()


def _offer(form: forms.Form, name: str, choices: Choices) -> None:
    now = form[name].value() or ""
    if now and now not in dict(choices):  # it is in the address, so show it here too
        choices = [*choices, (now, now)]
    ordered = sorted(choices, key=lambda choice: choice[1].lower())
    form.fields[name].widget = forms.Select(choices=[("", "any"), *ordered])


def _with_word(word: str) -> Q:
    """Where a word occurs; places without it are left out, so that the database scans less."""
    models = [model for model in _models_in_use() if word in f"{model} {model_name(model)}".lower()]
    members = list(User.objects.filter(username__icontains=word).values_list("pk", flat=True))
    tagged = TAGGINGS.filter(tag__name__icontains=word)
    noted = Note.objects.filter(text__icontains=word)
    places = [Q(model__in=models)] if models else []
    places += [Q(owner__in=members)] if members else []
    places += [
        Q(gpu=gpu, measured_gpu=measured_gpu)
        for gpu, measured_gpu in _gpus_in_use()
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


def _models_in_use() -> list[str]:
    return _values("model")


def _precisions_in_use() -> list[str]:
    return _values("precision")


def _software_in_use() -> list[str]:
    """Without the lab's own, which has no name."""
    return list(filter(None, _values("software")))


def _gpus_in_use() -> list[tuple[str, str]]:
    """Each as the pair stored in ``gpu`` and ``measured_gpu``."""
    names = _values("gpu")
    measured = _values("measured_gpu", "gpu = %s", LOCAL)
    return [(name, "") for name in names if name != LOCAL] + [(LOCAL, kind) for kind in measured]


def _values(column: str, condition: str = "1 = 1", *values: str) -> list[str]:
    """The distinct values of a column, found by leaps through its index.

    Neither SQLite nor PostgreSQL leaps by itself: their ``SELECT DISTINCT`` reads every entry.
    """
    quoted = connection.ops.quote_name
    table = quoted(Analysis._meta.db_table)
    sql = _DISTINCT_SQL.format(column=quoted(column), table=table, condition=condition)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*values, *values])
        return [value for (value,) in cursor.fetchall()]
