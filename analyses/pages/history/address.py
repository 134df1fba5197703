"""The address of the history, which holds all that the page shows, and the chips of its search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import QueryDict

from analyses.formatting import model_name
from analyses.pages.history import in_use, terms
from analyses.pages.history.columns import COLUMNS
from analyses.pages.history.filters import HistoryFilter

_USUAL = [column.key for column in COLUMNS if column.is_usual and not column.is_fixed]
OFFERED_PERIODS = ("today", "last-7-days", "this-month", "last-month", "this-year")
"""Periods that are one click away."""


@dataclass(frozen=True)
class Chip:
    """One term or filter.

    Attributes:
        text: The term as typed, or with the label of its filter.
        query: The address without it.
    """

    text: str
    query: str


@dataclass(frozen=True)
class Search:
    """The content of the search bar.

    Attributes:
        terms: The terms that are understood, as one text.
        typed: The part that is not understood, for its author to fix.
        periods: The periods to offer, each with the address that adds it.
    """

    chips: list[Chip]
    terms: str
    typed: str
    periods: list[Chip]

    @classmethod
    def of(cls, given: QueryDict) -> Search:
        """The search of an address that :func:`with_one_search` gives."""
        text = given.get("q", "")
        try:
            known = terms.parse(text)
        except terms.UnknownTerm:
            return cls(list(_filters(given)), "", text, [])
        chips = [
            Chip(str(term), query_of(given, q=terms.joined(one for one in known if one != term)))
            for term in known
        ]
        others = [term for term in known if not term.is_period]
        periods = [
            Chip(period, query_of(given, q=terms.joined([*others, terms.Term(None, period)])))
            for period in OFFERED_PERIODS
        ]
        return cls([*chips, *_filters(given)], terms.joined(known), "", periods)


def with_one_search(given: QueryDict) -> QueryDict:
    """The address with what was just typed joined to the terms that were there before."""
    text = " ".join(filter(None, given.getlist("q")))
    with suppress(terms.UnknownTerm):  # the form says what is wrong with it
        text = terms.joined(terms.parse(text))
    fields = given.copy()
    fields.setlist("q", [text] if text else [])
    return fields


def query_of(given: QueryDict, **changes: str | int) -> str:
    """The filters, sorting and columns of an address as one canonical query string.

    Args:
        given: The fields of the address; all others, such as the page, are left out, and so are
            empty ones and the usual columns.
        changes: Fields to set, or to leave out where empty.
    """
    fields: dict[str, list[str]] = {
        name: [value for value in given.getlist(name) if value]
        for name in HistoryFilter.base_filters
    }
    if sorted(fields["columns"]) == sorted(_USUAL):
        fields["columns"] = []
    fields |= {name: [str(value)] if value else [] for name, value in changes.items()}
    return urlencode({name: values for name, values in fields.items() if values}, doseq=True)


def _filters(given: QueryDict) -> Iterator[Chip]:
    for name, one in HistoryFilter.base_filters.items():
        value = given.get(name)
        if value and name not in ("q", "sort", "columns", "group", "density"):
            yield Chip(f"{one.label}: {_shown(name, value)}", query_of(given, **{name: ""}))


def _shown(name: str, value: str) -> str:
    match name:
        case "model":
            return model_name(value)
        case "gpu":
            kind, _, measured_gpu = value.partition(":")
            return in_use.gpu_title(kind, measured_gpu)
        case _:
            return value
