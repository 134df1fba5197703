"""The history in groups: how many analyses each has, what is adopted, and what it saves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from analyses.formatting import model_name
from analyses.lab.projects import NO_PROJECT
from analyses.models import Analysis
from analyses.pages.history import in_use
from analyses.selectors import kept_if_large
from memorymark_site.operations import csv_text

MAX_SHOWN = 200
"""Groups on the page; an export has all."""


@dataclass(frozen=True)
class _Grouping:
    """One way to group.

    Attributes:
        columns: Its database fields.
        value: The value of these fields in the filter of the same name.
        title: The same as people read it.
    """

    columns: tuple[str, ...]
    value: Callable[..., str]
    title: Callable[..., str]


GROUPED_BY: Mapping[str, _Grouping] = {
    "project": _Grouping(
        ("project__name",),
        lambda name: name or NO_PROJECT,
        lambda name: name or "No project",
    ),
    "model": _Grouping(("model",), str, model_name),
    "member": _Grouping(("owner__username",), str, str),
    "gpu": _Grouping(("gpu", "measured_gpu"), in_use.gpu_key, in_use.gpu_title),
}


@dataclass(frozen=True)
class Group:
    """The analyses of one project, model, member or GPU.

    Attributes:
        value: Its value in the filter of that name.
        analyses: Number of analyses.
        adopted: How many of them are adopted.
        verified: Workloads that a training run has verified.
        realised_usd_per_year: Savings of adopted workloads, each counted once for the lab.
        potential_usd_per_year: The same of workloads not adopted yet.
        gpu_hours_per_year: GPU-hours that both save.
    """

    title: str
    value: str
    analyses: int
    adopted: int
    verified: int
    realised_usd_per_year: float
    potential_usd_per_year: float
    gpu_hours_per_year: float


_EXPORTED: Mapping[str, str] = {
    "analyses": "analyses",
    "adopted": "adopted_analyses",
    "verified": "verified_workloads",
    "realised_usd_per_year": "realised_savings_usd_per_year_at_assumed_prices",
    "potential_usd_per_year": "potential_savings_usd_per_year_at_assumed_prices",
    "gpu_hours_per_year": "saved_gpu_hours_per_year_at_assumed_hours",
}
"""The columns of an export by attribute; before them comes the group's title."""


def groups_of(analyses: QuerySet[Analysis], by: str) -> list[Group]:
    """The groups of these analyses, by one of :data:`GROUPED_BY`; those that save most first.

    Beyond ten thousand analyses, they may be a minute old.
    """
    return kept_if_large(analyses, f"groups-by-{by}", lambda: _added_up(analyses, by))


def _added_up(analyses: QuerySet[Analysis], by: str) -> list[Group]:
    grouping = GROUPED_BY[by]
    savings = "counted_savings__usd_per_year"
    rows = (
        analyses.order_by()
        .values(*grouping.columns)
        .annotate(
            count=Count("pk"),
            adopted=Count("adopted_at"),
            verified=Count("pk", filter=Q(counted_savings__is_verified=True)),
            realised=Sum(savings, filter=Q(counted_savings__is_realised=True)),
            potential=Sum(savings, filter=Q(counted_savings__is_realised=False)),
            hours=Sum("counted_savings__gpu_hours_per_year"),
        )
    )
    groups = [_group(grouping, row) for row in rows]
    return sorted(
        groups,
        key=lambda group: (
            -group.realised_usd_per_year - group.potential_usd_per_year,
            -group.analyses,
            group.title,
        ),
    )


def _group(grouping: _Grouping, row: Mapping[str, Any]) -> Group:
    columns = [row[name] for name in grouping.columns]
    return Group(
        title=grouping.title(*columns),
        value=grouping.value(*columns),
        analyses=row["count"],
        adopted=row["adopted"],
        verified=row["verified"],
        realised_usd_per_year=row["realised"] or 0.0,
        potential_usd_per_year=row["potential"] or 0.0,
        gpu_hours_per_year=row["hours"] or 0.0,
    )


def groups_as_csv(groups: Iterable[Group], by: str) -> Iterator[str]:
    """A header line, then one line per group."""
    rows: list[Sequence[csv_text.Cell]] = [[by, *_EXPORTED.values()]]
    rows += [[one.title, *(getattr(one, name) for name in _EXPORTED)] for one in groups]
    return csv_text.csv_lines(rows)


def groups_as_json(groups: Iterable[Group], by: str) -> Iterator[str]:
    """A JSON array with an object per group."""
    rows = [
        {by: one.title} | {name: getattr(one, key) for key, name in _EXPORTED.items()}
        for one in groups
    ]
    yield json.dumps(rows, indent=2) + "\n"
