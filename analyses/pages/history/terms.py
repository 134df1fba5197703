"""The terms of a search, such as ``model:vit member=maria speedup>1.2 adopted last-month``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum

PERIODS = (
    "today", "yesterday", "last-7-days", "last-30-days", "this-week", "last-week", "this-month",
    "last-month", "this-quarter", "last-quarter", "this-year", "last-year",
)  # fmt: skip
"""Periods in which an analysis was submitted."""


class Key(StrEnum):
    """The subject of a term; a relation and a value follow."""

    MODEL = "model"
    MEMBER = "member"
    GPU = "gpu"
    STATUS = "status"
    PRECISION = "precision"
    SOFTWARE = "software"
    PROJECT = "project"
    TAG = "tag"
    NOTE = "note"
    OPTIMIZER = "optimizer"
    BATCH = "batch"
    LARGEST = "largest"
    SPEEDUP = "speedup"
    SAVINGS = "savings"
    AFTER = "after"
    BEFORE = "before"


NUMBERS = (Key.BATCH, Key.LARGEST, Key.SPEEDUP, Key.SAVINGS)
DAYS = (Key.AFTER, Key.BEFORE)


class Relation(StrEnum):
    """The relation between a key and its value."""

    HAS = ":"
    IS = "="
    ABOVE = ">"
    AT_LEAST = ">="
    BELOW = "<"
    AT_MOST = "<="


class Switch(StrEnum):
    """Properties that a term selects by a single word."""

    ADOPTED = "adopted"
    VERIFIED = "verified"
    IMPORTED = "imported"
    SCRIPT = "script"
    GAIN = "gain"


@dataclass(frozen=True)
class Term:
    """One term of a search.

    Attributes:
        key: Its subject; ``None`` for a plain word, a switch or a period.
        value: The value, in lower case.
        relation: How key and value relate; texts have or are it, numbers are it or lie beside it.
        is_quoted: Whether its value is just a word, even if it is spelled like a switch.
        is_without: Whether it leaves out what it finds, as in ``-adopted``.
    """

    key: Key | None
    value: str
    relation: Relation = Relation.HAS
    is_quoted: bool = False
    is_without: bool = False

    @property
    def switch(self) -> Switch | None:
        is_one = self.key is None and not self.is_quoted and self.value in list(Switch)
        return Switch(self.value) if is_one else None

    @property
    def is_period(self) -> bool:
        return self.key is None and not self.is_quoted and self.value in PERIODS

    @property
    def is_of_days(self) -> bool:
        """Whether it looks at when an analysis was submitted."""
        return self.is_period or self.key in DAYS

    def __str__(self) -> str:
        """The term as it is typed."""
        value = f'"{self.value}"' if self.is_quoted else self.value
        key = f"{self.key}{self.relation}" if self.key else ""
        return f"{'-' if self.is_without else ''}{key}{value}"


class UnknownTerm(ValueError):
    """A term cannot be understood; the message says what can be."""


_TERM = re.compile(
    r"(?P<minus>-?)(?:(?P<key>[a-z]+)(?P<relation>[<>!]?=|[:<>]))?"
    r'(?:"(?P<quoted>[^"]*)"?|(?P<plain>\S*))'
)
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,15})?")


def parse(text: str) -> list[Term]:
    """The terms of a text, each once.

    Raises:
        UnknownTerm: It names something that is not searched, or a day that does not exist.
    """
    terms = (_term(match) for match in _TERM.finditer(text.lower()) if match[0].strip("-"))
    return list(dict.fromkeys(terms))


def joined(terms: Iterable[Term]) -> str:
    """The text of several terms; :func:`parse` gives them back."""
    return " ".join(map(str, terms))


def days_of(period: str, today: date) -> tuple[date, date]:
    """The first and the last day of one of :data:`PERIODS`; weeks begin on Monday."""
    if period == "today":
        return today, today
    if period == "yesterday":
        return (yesterday := today - timedelta(days=1)), yesterday
    which, unit, *is_span = period.split("-")
    if is_span:  # last-7-days
        return today - timedelta(days=int(unit) - 1), today
    first = _first_day(unit, today)
    if which == "this":
        return first, today
    last = first - timedelta(days=1)
    return _first_day(unit, last), last


def _first_day(unit: str, day: date) -> date:
    match unit:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=day.month - (day.month - 1) % 3, day=1)
        case _:
            return day.replace(month=1, day=1)


def _term(match: re.Match[str]) -> Term:
    is_quoted = match["quoted"] is not None
    value = (match["quoted"] or "") if is_quoted else match["plain"]
    term = Term(None, value, is_quoted=is_quoted, is_without=bool(match["minus"]))
    if match["key"] is None:
        return term
    sign = match["relation"]
    if match["key"] not in list(Key):
        raise UnknownTerm(
            f"“{match['key']}{sign}” is not searched. Use {', '.join(Key)}, "
            "or put the words in quotes."
        )
    if not value:
        raise UnknownTerm(f"Enter a value after “{match['key']}{sign}”.")
    key = Key(match["key"])
    return replace(
        term,
        key=key,
        relation=_relation(key, Relation(sign.removeprefix("!")), value),
        is_quoted=is_quoted and " " in value,
        is_without=term.is_without != (sign == "!="),
    )


def _relation(key: Key, relation: Relation, value: str) -> Relation:
    """The relation as it is kept: days and a status have one, of two ways to write it."""
    if key in NUMBERS:
        if not _NUMBER.fullmatch(value):
            raise UnknownTerm(f"Enter a number as in {key}>1.5.")
        return Relation.IS if relation is Relation.HAS else relation
    if relation not in (Relation.HAS, Relation.IS):
        raise UnknownTerm(f"“{key}” is not a number. Use “{key}:” or “{key}=”.")
    if key in DAYS:
        _check_day(key, value)
    return Relation.HAS if key in (*DAYS, Key.STATUS) else relation


def _check_day(key: Key, value: str) -> None:
    try:
        date.fromisoformat(value)
    except ValueError:
        raise UnknownTerm(f"Enter a day as in {key}:2026-03-31.") from None
