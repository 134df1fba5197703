"""Database queries that pages and API share: which analyses a user may see, and how many."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.models import User as Member
from django.core.cache import cache
from django.db.models import F, QuerySet
from django.db.models.expressions import OrderBy
from django.db.models.functions import Coalesce

from analyses.models import Analysis, CountedSavings, RunSavings, TrainingJob
from analyses.models.analysis import SORTED_BY
from analyses.permissions import may_see_lab
from analyses.results.decided import decided_of

COUNTED = 10_000
"""Counting stops here; an exact larger number is not worth the time."""

MAX_SORTED = 1_000
"""Up to this many analyses are found first and sorted then; a page counts no further either."""

KEPT_SECONDS = 60
"""Seconds a process caches what it has counted of more analyses than :data:`COUNTED`."""

T = TypeVar("T")


@dataclass(frozen=True)
class Count:
    """A number of analyses, up to where counting stops, and whether that is all of them."""

    number: int
    is_all: bool


@dataclass(frozen=True)
class Slice:
    """The ids from one place to another, in order; the count goes up to :data:`MAX_SORTED`."""

    ids: list[int]
    count: Count


def visible_to(user: Member | AnonymousUser) -> QuerySet[Analysis]:
    """The analyses this user may see: all for members of the lab, none for anyone else."""
    analyses = with_decision(
        Analysis.objects.select_related("owner", "adopted_by", "push", "project")
    )
    return analyses if may_see_lab(user) else analyses.none()


def with_decision(analyses: QuerySet[Analysis]) -> QuerySet[Analysis]:
    """The same analyses with their decisions read along, without the long answers before them."""
    return analyses.select_related("decided").defer("decided__before")


def count_of(analyses: QuerySet[Analysis]) -> Count:
    found = analyses.order_by().values("pk")[: COUNTED + 1].count()
    return Count(min(found, COUNTED), found <= COUNTED)


def exact_count(analyses: QuerySet[Analysis]) -> int:
    """The number of analyses; one beyond :data:`COUNTED` may be a minute old.

    Counting a million takes as long as all else on a page.
    """
    found = count_of(analyses)
    return found.number if found.is_all else _kept(analyses, "count", analyses.order_by().count)


def kept_if_large(analyses: QuerySet[Analysis], name: str, read: Callable[[], T]) -> T:
    """Read something of all these analyses; beyond :data:`COUNTED`, it may be a minute old.

    Args:
        analyses: The analyses it depends on.
        name: Its name, as a cache key.
        read: Reads it.
    """
    return read() if count_of(analyses).is_all else _kept(analyses, name, read)


def _kept(analyses: QuerySet[Analysis], name: str, read: Callable[[], T]) -> T:
    which = hashlib.sha256(str(analyses.order_by().query).encode()).hexdigest()
    key = f"analyses-{name}-{which}"
    found: T | None = cache.get(key)
    if found is None:
        found = read()
        cache.set(key, found, KEPT_SECONDS)
    return found


def slice_of(analyses: QuerySet[Analysis], first: int, end: int) -> Slice:
    """The ids from one place to another, in order.

    To find few in the order of an index, a database may pass all others. So up to
    :data:`MAX_SORTED` are found first, by the index of whatever they match, and sorted then; more
    are soon met in order.
    """
    found = analyses.order_by().values("pk")[: MAX_SORTED + 1].count()
    order = analyses.query.order_by or Analysis._meta.ordering or ()
    if found > MAX_SORTED:
        ids = _among_the_first(analyses, order, first, end) or _between(analyses, first, end)
        return Slice(ids, Count(MAX_SORTED, is_all=False))
    few = analyses.order_by(*map(_by_value, order))
    return Slice(list(few.values_list("pk", flat=True)[first:end]), Count(found, is_all=True))


def _among_the_first(
    analyses: QuerySet[Analysis], order: Any, first: int, end: int
) -> list[int] | None:
    """The same ids where the first :data:`MAX_SORTED` of the lab have them, else none.

    Where thousands match, a database prefers the index of what they match and sorts them all. The
    first of an order are read from its own index, and what many match, many of these match too.
    """
    if not (order and analyses.query.where and _name(order[0]) in _INDEXED):
        return None
    head = Analysis.objects.order_by(*order).values("pk")[:MAX_SORTED]
    among = analyses.filter(pk__in=head).order_by(*map(_by_value, order))
    found = list(among.values_list("pk", flat=True)[:end])
    return found[first:] if len(found) == end else None


_INDEXED = frozenset(columns[0] for columns in SORTED_BY)


def _name(order: Any) -> str:
    """The column of an order; empty if it is not just one."""
    if not isinstance(order, OrderBy):
        return str(order).removeprefix("-")
    (value,) = order.get_source_expressions()
    return str(value.name) if isinstance(value, F) else ""  # type: ignore[attr-defined]  # stubs lack it


def _by_value(order: Any) -> OrderBy:
    """The same order by a value that no index has, so that what is found is sorted."""
    if not isinstance(order, OrderBy):
        name = str(order)
        order = OrderBy(F(name.removeprefix("-")), descending=name.startswith("-"))
    (value,) = order.get_source_expressions()
    sorted_by: OrderBy = order.copy()
    sorted_by.set_source_expressions([Coalesce(value, value)])
    return sorted_by


def _between(analyses: QuerySet[Analysis], first: int, end: int) -> list[int]:
    """A database reads all that it skips, so places in the second half are found from the end."""
    ids = analyses.values_list("pk", flat=True)
    if first > COUNTED:
        count = exact_count(analyses)
        if first > count // 2:
            return list(ids.reverse()[max(0, count - end) : max(0, count - first)])[::-1]
    return list(ids[first:end])


def savings_visible_to(user: Member | AnonymousUser) -> QuerySet[CountedSavings]:
    return CountedSavings.objects.all() if may_see_lab(user) else CountedSavings.objects.none()


def run_savings_visible_to(user: Member | AnonymousUser) -> QuerySet[RunSavings]:
    return RunSavings.objects.all() if may_see_lab(user) else RunSavings.objects.none()


def can_be_adopted(analysis: Analysis) -> bool:
    """Whether it has a decision to follow, other than to go on as today."""
    recommended = analysis.recommended_batch_size
    changes = recommended is not None and recommended != analysis.current_batch_size
    is_decided = decided_of(analysis) is not None or analysis.adopted_at is not None
    return analysis.has_answer and (changes or is_decided)


def detail(user: Member | AnonymousUser) -> QuerySet[Analysis]:
    """As :func:`visible_to`, with trials, tags and note prefetched."""
    return visible_to(user).select_related("note").prefetch_related("trials", "tags")


def training_jobs_visible_to(user: Member | AnonymousUser) -> QuerySet[TrainingJob]:
    return TrainingJob.objects.all() if may_see_lab(user) else TrainingJob.objects.none()
