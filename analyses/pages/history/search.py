"""Queries for the terms of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from functools import reduce
from operator import or_
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Exists, F, Func, Q, QuerySet, lookups
from django.utils import timezone

from analyses.formatting import model_name
from analyses.models import OF_A_PROGRAM, OUTCOMES, Analysis, Note, Project, Tag, with_outcome
from analyses.pages.history import in_use
from analyses.pages.history.columns import VERIFYING, in_order
from analyses.pages.history.labels import TAGGINGS
from analyses.pages.history.terms import (
    PERIODS,
    Key,
    Relation,
    Switch,
    Term,
    UnknownTerm,
    days_of,
    parse,
)
from engine.gpus import LOCAL

NOTHING = Q(pk__in=[])

_OUTCOMES = [name for name, _ in OUTCOMES]


class SearchField(forms.CharField):
    """A text of terms."""

    def validate(self, value: str) -> None:
        """Refuse terms that cannot be understood, with what can be."""
        super().validate(value)
        try:
            terms = parse(value)
        except UnknownTerm as error:
            raise ValidationError(str(error)) from error
        unknown = {term.value for term in terms if term.key is Key.STATUS} - set(_OUTCOMES)
        if unknown:
            known = ", ".join(_OUTCOMES)
            raise ValidationError(f"There is no status “{unknown.pop()}”. Use {known}.")


def suggestions(values: Mapping[Key, Iterable[str]]) -> list[str]:
    """Terms for the browser to complete.

    Args:
        values: The values that find something in this lab; one that is part of another is also
            offered as the exact one.
    """
    terms = [term for key, found in values.items() for term in _offered(key, list(found))]
    return [*map(str, terms), *Switch, *PERIODS]


def _offered(key: Key, values: list[str]) -> Iterator[Term]:
    for value in values:
        term = Term(key, value, is_quoted=" " in value)
        yield term
        if any(value in other for other in values if other != value):
            yield replace(term, relation=Relation.IS)


def matching(analyses: QuerySet[Analysis], text: str) -> QuerySet[Analysis]:
    """The analyses that match every term.

    Raises:
        UnknownTerm: A term cannot be understood.
    """
    terms = parse(text)
    for term in terms:
        found = _condition(term, is_only=len(terms) == 1)
        analyses = analyses.filter(~found if term.is_without else found)
    of_days = any(term.is_of_days and not term.is_without for term in terms)
    return latest_first(analyses) if of_days else analyses


def latest_first(analyses: QuerySet[Analysis]) -> QuerySet[Analysis]:
    """The order of a stretch of time unless another is wanted, as its index has it.

    In the order of ids, a database would pass all that is newer.
    """
    return in_order(analyses, "-when")


def since(day: date) -> Q:
    """The analyses submitted on that day (UTC) or later."""
    return Q(queued_at__gte=_start_of(day))


def until(day: date) -> Q:
    """The analyses submitted on that day (UTC) or earlier."""
    return Q(queued_at__lte=_end_of(day))


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def _end_of(day: date) -> datetime:
    return datetime.combine(day, time.max, UTC)


class _Unindexed(Func):
    """A column by which SQLite does not search.

    Its index of one number lacks all others: to look at those it reads rows, and rows are long.
    With several terms, it had better stay within an index of all columns.
    """

    template = "%(expressions)s"
    arity = 1

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="+%(expressions)s", **context)


def _condition(term: Term, *, is_only: bool) -> Q:
    if term.is_period:
        first, last = days_of(term.value, timezone.now().date())
        return since(first) & until(last)
    if term.switch:
        return _SWITCHES[term.switch]
    if term.key is None:
        return _with_word(term.value)
    if term.key in _NUMBERS:
        column = F(_NUMBERS[term.key])
        return Q(
            _LOOKUPS[term.relation](column if is_only else _Unindexed(column), float(term.value))
        )
    finders = _EXACT_FINDERS if term.relation is Relation.IS else _FINDERS
    return finders[term.key](term.value)


_SWITCHES = {
    Switch.ADOPTED: Q(adopted_at__isnull=False),
    Switch.VERIFIED: Q(adopted_at__isnull=False) & Q(Exists(VERIFYING)),
    Switch.IMPORTED: Q(push__isnull=False),
    Switch.SCRIPT: OF_A_PROGRAM,
    Switch.GAIN: Q(has_gain=True),
}


def _with_word(word: str) -> Q:
    """The analyses with a word; places without it are left out, so that the database scans less."""
    places = [_with_model(word), _with_member(word), _with_gpu(word), _with_tag(word)]
    places.append(_of_projects(Project.objects.filter(name__icontains=word)))
    noted = Note.objects.filter(text__icontains=word)
    places += [Q(pk__in=noted.values("analysis"))] if noted.exists() else []
    number = word.removeprefix("#")
    if number.isascii() and number.isdigit() and len(number) < 19:
        places.append(Q(pk=int(number)))
    return _any_of(place for place in places if place != NOTHING)


def _with_model(word: str) -> Q:
    models = [one for one in in_use.models() if word in f"{one} {model_name(one)}".lower()]
    return Q(model__in=models) if models else NOTHING


def _with_member(word: str) -> Q:
    return _of(User.objects.filter(username__icontains=word))


def _of(members: QuerySet[User]) -> Q:
    """Looked up beforehand, so that the database stays within one index."""
    found = list(members.values_list("pk", flat=True))
    return Q(owner__in=found) if found else NOTHING


def _with_gpu(word: str) -> Q:
    return _on_one_of(
        (gpu, measured)
        for gpu, measured in in_use.gpus()
        if word == gpu or word in in_use.gpu_title(gpu, measured).lower()
    )


def _on_one_of(gpus: Iterable[tuple[str, str]]) -> Q:
    """One list of names for each of the two columns, rather than an ``OR`` of many pairs."""
    pairs = list(gpus)
    kinds = [measured for _, measured in pairs if measured]
    names = [gpu for gpu, measured in pairs if not measured]
    places = [Q(gpu=LOCAL, measured_gpu__in=kinds)] if kinds else []
    places += [Q(gpu__in=names, measured_gpu="")] if names else []
    return _any_of(places)


def _any_of(places: Iterable[Q]) -> Q:
    return reduce(or_, places, NOTHING)


def _with_precision(word: str) -> Q:
    return Q(precision__in=[name for name in in_use.precisions() if word in name])


def _with_optimizer(word: str) -> Q:
    return Q(optimizer__in=[name for name in in_use.optimizers() if word in name])


def _with_software(word: str) -> Q:
    return Q(software__in=[name for name in in_use.software() if word in name])


def _with_tag(word: str) -> Q:
    return _tagged(Tag.objects.filter(name__icontains=word))


def _of_projects(projects: QuerySet[Project]) -> Q:
    found = list(projects.values_list("pk", flat=True))
    return Q(project__in=found) if found else NOTHING


def _tagged(tags: QuerySet[Tag]) -> Q:
    """Looked up beforehand too, so that only their own pairs are read."""
    found = list(tags.values_list("pk", flat=True))
    return Q(pk__in=TAGGINGS.filter(tag__in=found).values("analysis")) if found else NOTHING


def _with_note(word: str) -> Q:
    return Q(note__text__icontains=word)  # a join ends with the page, a subquery reads all notes


def _of_model(name: str) -> Q:
    models = [one for one in in_use.models() if name in (one.lower(), model_name(one).lower())]
    return Q(model__in=models)


def _on_gpu(name: str) -> Q:
    return _on_one_of(
        (gpu, measured)
        for gpu, measured in in_use.gpus()
        if name in (gpu, in_use.gpu_title(gpu, measured).lower())
    )


_FINDERS: dict[Key, Callable[[str], Q]] = {
    Key.MODEL: _with_model,
    Key.MEMBER: _with_member,
    Key.GPU: _with_gpu,
    Key.STATUS: with_outcome,
    Key.PRECISION: _with_precision,
    Key.SOFTWARE: _with_software,
    Key.PROJECT: lambda word: _of_projects(Project.objects.filter(name__icontains=word)),
    Key.TAG: _with_tag,
    Key.NOTE: _with_note,
    Key.OPTIMIZER: _with_optimizer,
    Key.AFTER: lambda word: Q(queued_at__gt=_end_of(date.fromisoformat(word))),
    Key.BEFORE: lambda word: Q(queued_at__lt=_start_of(date.fromisoformat(word))),
}

_EXACT_FINDERS: dict[Key, Callable[[str], Q]] = {
    Key.MODEL: _of_model,
    Key.MEMBER: lambda name: _of(User.objects.filter(username__iexact=name)),
    Key.GPU: _on_gpu,
    Key.PRECISION: lambda name: Q(precision=name),
    Key.SOFTWARE: lambda name: Q(software=name),
    Key.PROJECT: lambda name: _of_projects(Project.objects.filter(name__iexact=name)),
    Key.TAG: lambda name: _tagged(Tag.objects.filter(name=name)),
    Key.NOTE: lambda text: Q(note__text__iexact=text),
    Key.OPTIMIZER: lambda name: Q(optimizer=name),
}

_NUMBERS = {
    Key.BATCH: "recommended_batch_size",
    Key.LARGEST: "largest_batch_size",
    Key.SPEEDUP: "speedup",
    Key.SAVINGS: "usd_per_year",
}
_LOOKUPS = {
    Relation.IS: lookups.Exact,
    Relation.ABOVE: lookups.GreaterThan,
    Relation.AT_LEAST: lookups.GreaterThanOrEqual,
    Relation.BELOW: lookups.LessThan,
    Relation.AT_MOST: lookups.LessThanOrEqual,
}
