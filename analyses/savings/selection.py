"""Selection of savings by an address: a period, filters and the dimension of the breakdown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.db.models import F, QuerySet

from analyses.formatting import gpu_name, local_gpu, model_name
from analyses.lab.projects import NO_PROJECT, in_project
from analyses.models import CountedSavings, RunSavings
from analyses.savings.breakdown import DIMENSIONS, FILTERED_KINDS, KINDS, MONTH, VERIFIED
from analyses.savings.period import Period, period_of
from engine.core.errors import InvalidInput
from engine.gpus import LOCAL

Rows = TypeVar("Rows", CountedSavings, RunSavings)
"""Both have the columns that are filtered by."""


def today_utc() -> date:
    return datetime.now(UTC).date()


@dataclass(frozen=True)
class Selection:
    """The period, the filters and the dimension of the savings page; empty fields do not filter.

    In addresses, ``from_`` is ``from``.

    Attributes:
        period: ``month``, ``quarter``, ``year`` (the default) or ``all``.
        from_, to: The first and the last day instead, such as ``2026-01-31``.
        member: The user name of who adopted it, or else of its owner.
        gpu: A name of the catalogue, or ``local:NAME`` for one that was measured on.
        project: Its name, in any case; ``none`` for workloads without one.
        month: Such as ``2026-03``.
        kind: ``realised``, ``potential``, or for workloads of which a part of what they saved is
            ``verified`` or ``self_reported``.
        by: ``member``, ``model``, ``gpu``, ``project`` or ``month``.
    """

    period: str = ""
    from_: str = ""
    to: str = ""
    member: str = ""
    model: str = ""
    gpu: str = ""
    project: str = ""
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
        if self.kind and self.kind not in FILTERED_KINDS:
            wrong["kind"] = f"choose one of {', '.join(FILTERED_KINDS)}, or leave it out"
        if self.month:
            try:
                first_day(self.month)
            except ValueError:
                wrong["month"] = "use the form 2026-03"
        try:
            period_of(self.period, self.from_, self.to, today_utc())
        except InvalidInput as error:
            wrong = error.fields | wrong
        if wrong:
            raise InvalidInput(wrong)

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Selection:
        """Read the query of an address; unknown fields are ignored.

        Raises:
            InvalidInput: With a message for each wrong field.
        """
        names = {name: name.rstrip("_") for name in cls.__dataclass_fields__}
        return cls(**{name: query[given] for name, given in names.items() if query.get(given)})

    @property
    def days(self) -> Period:
        """The period as days, until today."""
        return period_of(self.period, self.from_, self.to, today_utc())

    def of(self, rows: QuerySet[Rows]) -> QuerySet[Rows]:
        """Filter rows of counted savings or of the savings of runs."""
        fields: dict[str, Any] = {}
        if self.member:
            fields["member__username"] = self.member
        if self.model:
            fields["model"] = self.model
        if self.gpu:
            name, _, kind = self.gpu.partition(":")
            fields |= {"gpu": name, "measured_gpu": kind}
        if self.project:
            fields |= in_project(self.project)
        if self.month:
            fields["month"] = first_day(self.month)
        if self.kind in KINDS:
            fields["is_realised"] = KINDS[self.kind]
        elif self.kind:
            fields["workload_key__in"] = _realised_as(self.kind).values("workload_key")
        return rows.filter(**fields)

    def query(self, **changes: str) -> str:
        """The query string of this selection, with changes."""
        return "?" + urlencode(replace(self, **changes).fields())

    def fields(self, without: Collection[str] = ()) -> list[tuple[str, str]]:
        """The fields of the address that are set, except some."""
        given = asdict(self).items()
        return [(name.rstrip("_"), text) for name, text in given if text and name not in without]

    def during(self, period: str = "", from_: str = "", to: str = "") -> str:
        """The query string of this selection in another period."""
        return self.query(period=period, from_=from_, to=to)

    def chosen(self) -> list[tuple[str, str, str]]:
        """The filters that are set: the field, its value as text, and the query without it."""
        shown = {
            "member": self.member,
            "model": model_name(self.model),
            "gpu": gpu_label(self.gpu),
            "project": label_of("project", self.project),
            "month": self.month,
            "kind": self.kind.replace("_", "-"),
        }
        return [
            (name, value, self.query(**{name: ""}))
            for name, value in shown.items()
            if getattr(self, name)
        ]


def _realised_as(kind: str) -> QuerySet[CountedSavings]:
    """The workloads with a recorded run, or with days that accrued by assumption."""
    if kind == VERIFIED:
        return CountedSavings.objects.filter(is_verified=True)
    return CountedSavings.objects.filter(is_realised=True, assumed_until__gt=F("since_day"))


def first_day(month: str) -> date:
    return datetime.strptime(month, MONTH).date()  # noqa: DTZ007  # a month has no zone


def value_of(dimension: str, key: tuple[Any, ...]) -> str:
    """The value of a row's member, model, GPU, project or month in an address."""
    if dimension == "gpu":
        gpu, measured_gpu = key
        return local_gpu(measured_gpu) if measured_gpu else str(gpu)
    if dimension == "month":
        return f"{key[0]:{MONTH}}"
    return str(key[0]) or NO_PROJECT


def label_of(dimension: str, value: str) -> str:
    """The label of such a value."""
    if dimension == "model":
        return model_name(value)
    if dimension == "project" and value == NO_PROJECT:
        return "no project"
    return gpu_label(value) if dimension == "gpu" else value


def gpu_label(value: str) -> str:
    kind = value.removeprefix(f"{LOCAL}:")
    return kind if kind != value else gpu_name(value)
