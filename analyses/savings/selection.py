"""Which savings an address shows: filters and the dimension to break them down by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet

from analyses.formatting import gpu_name, local_gpu, model_name
from analyses.models import CountedSavings
from analyses.savings.breakdown import DIMENSIONS, KINDS, MONTH
from engine.errors import InvalidInput
from engine.gpus import LOCAL


@dataclass(frozen=True)
class Selection:
    """The filters and the dimension of the savings page; empty fields do not filter.

    Attributes:
        member: The owner's user name.
        gpu: A name of the catalogue, or ``local:NAME`` for one that was measured on.
        month: Such as ``2026-03``.
        kind: ``realised`` or ``potential``.
        by: ``member``, ``model``, ``gpu`` or ``month``.
    """

    member: str = ""
    model: str = ""
    gpu: str = ""
    month: str = ""
    kind: str = ""
    by: str = "member"

    def __post_init__(self) -> None:
        wrong = {  # no database can look it up
            name: "it contains a NUL; remove it"
            for name, value in asdict(self).items()
            if "\0" in value
        }
        if self.by not in DIMENSIONS:
            wrong["by"] = f"choose one of {', '.join(DIMENSIONS)}"
        if self.kind and self.kind not in KINDS:
            wrong["kind"] = f"choose one of {', '.join(KINDS)}, or leave it out"
        if self.month:
            try:
                _first_day(self.month)
            except ValueError:
                wrong["month"] = "use the form 2026-03"
        if wrong:
            raise InvalidInput(wrong)

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Selection:
        """Read the query of an address; unknown fields are ignored.

        Raises:
            InvalidInput: With a message for each wrong field.
        """
        given = {name: query[name] for name in cls.__dataclass_fields__ if query.get(name)}
        return cls(**given)

    def of(self, counted: QuerySet[CountedSavings]) -> QuerySet[CountedSavings]:
        fields: dict[str, Any] = {}
        if self.member:
            fields["owner__username"] = self.member
        if self.model:
            fields["model"] = self.model
        if self.gpu:
            name, _, kind = self.gpu.partition(":")
            fields |= {"gpu": name, "measured_gpu": kind}
        if self.month:
            fields["month"] = _first_day(self.month)
        if self.kind:
            fields["is_realised"] = KINDS[self.kind]
        return counted.filter(**fields)

    def query(self, **changes: str) -> str:
        """The query string of this selection, with changes."""
        fields = asdict(replace(self, **changes))
        return "?" + urlencode({name: value for name, value in fields.items() if value})

    def chosen(self) -> list[tuple[str, str, str]]:
        """The filters that are set: the field, its value as text, and the query without it."""
        shown = {
            "member": self.member,
            "model": model_name(self.model),
            "gpu": gpu_label(self.gpu),
            "month": self.month,
            "kind": self.kind,
        }
        return [
            (name, value, self.query(**{name: ""}))
            for name, value in shown.items()
            if getattr(self, name)
        ]


def _first_day(month: str) -> date:
    return datetime.strptime(month, MONTH).date()  # noqa: DTZ007  # a month has no zone


def value_of(dimension: str, key: tuple[Any, ...]) -> str:
    """The value of a row's member, model, GPU or month in an address."""
    if dimension == "gpu":
        gpu, measured_gpu = key
        return local_gpu(measured_gpu) if measured_gpu else str(gpu)
    if dimension == "month":
        return f"{key[0]:{MONTH}}"
    return str(key[0])


def label_of(dimension: str, value: str) -> str:
    """The label of such a value."""
    if dimension == "model":
        return model_name(value)
    return gpu_label(value) if dimension == "gpu" else value


def gpu_label(value: str) -> str:
    kind = value.removeprefix(f"{LOCAL}:")
    return kind if kind != value else gpu_name(value)
