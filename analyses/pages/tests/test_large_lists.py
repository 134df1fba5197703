"""Lists stay fast in a lab of a million analyses: far pages, counts and stretches of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from analyses import selectors
from analyses.models import Analysis
from analyses.overview.weeks import weeks_until
from analyses.pages.history.columns import in_order
from analyses.pages.history.filters import AnalysisFilter
from analyses.selectors import Count, exact_count, slice_of
from analyses.tests.factories import make_request

pytestmark = pytest.mark.database

ROWS = 11


@pytest.fixture
def many(member: User, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ids of more analyses than are counted each time, the newest first."""
    monkeypatch.setattr(selectors, "COUNTED", 3)
    monkeypatch.setattr(selectors, "MAX_SORTED", 3)
    cache.clear()
    _add(member, ROWS)
    return list(Analysis.objects.order_by("-pk").values_list("pk", flat=True))


@pytest.mark.parametrize("length", [1, 2, 4, 20])
def test_each_analysis_has_one_place_from_whichever_end_it_is_found(
    many: list[int], length: int
) -> None:
    analyses = Analysis.objects.all()
    for first in range(0, ROWS + length, length):
        found = slice_of(analyses, first, first + length)
        assert found.ids == many[first : first + length]


def test_the_last_ones_are_found_from_the_end(many: list[int]) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert slice_of(Analysis.objects.all(), ROWS - 3, ROWS - 1).ids == many[-3:-1]
    assert queries[-1]["sql"].endswith("LIMIT 2 OFFSET 1")


@pytest.mark.parametrize("order", ["pk", "-pk", "optimizer"])
def test_few_are_found_first_and_sorted_then(many: list[int], order: str) -> None:
    few = Analysis.objects.filter(pk__in=many[4:7]).order_by(order, "pk")
    with CaptureQueriesContext(connection) as queries:
        found = slice_of(few, 1, 3)
    assert found.ids == (sorted(many[4:7], reverse=order == "-pk"))[1:3]
    assert found.count == Count(3, is_all=True)
    assert "ORDER BY" not in queries[0]["sql"]
    assert slice_of(Analysis.objects.all(), 0, 1).count == Count(3, is_all=False)


def test_the_first_of_many_are_looked_for_among_the_first_of_the_lab(many: list[int]) -> None:
    Analysis.objects.update(speedup=F("pk"))
    matching = in_order(Analysis.objects.filter(pk__lt=many[0]), "-speedup")
    with CaptureQueriesContext(connection) as queries:
        assert slice_of(matching, 0, 2).ids == many[1:3]
    assert len(queries) == 2
    assert slice_of(matching, 1, 2).ids == many[2:3]

    with CaptureQueriesContext(connection) as queries:  # more than are found there
        assert slice_of(matching, 0, 4).ids == many[1:5]
    assert len(queries) == 3


def test_a_large_number_is_counted_once_a_minute(many: list[int], member: User) -> None:
    analyses, of_member = Analysis.objects.all(), Analysis.objects.filter(owner=member)
    assert exact_count(analyses) == ROWS
    _add(member, 1)
    assert exact_count(analyses) == ROWS
    assert exact_count(of_member) == ROWS + 1  # counted for the first time
    cache.clear()
    assert exact_count(analyses) == ROWS + 1


def test_the_weeks_of_a_large_lab_are_counted_once_a_minute(many: list[int], member: User) -> None:
    today = timezone.now().date()

    def total() -> int:
        weeks = weeks_until(Analysis.objects.all(), today)
        return sum(sum(week.counts.values()) for week in weeks)

    assert total() == ROWS
    _add(member, 1)
    assert total() == ROWS
    cache.clear()
    assert total() == ROWS + 1


def test_a_small_number_is_always_exact(member: User) -> None:
    for number in range(3):
        assert exact_count(Analysis.objects.all()) == number
        _add(member, 1)


def test_a_stretch_of_time_is_in_the_order_of_time_unless_another_is_wanted(member: User) -> None:
    later, earlier = _add(member, 2)  # such as one that was imported
    Analysis.objects.filter(pk=earlier.pk).update(queued_at=timezone.now() - timedelta(days=1))
    given = {"date_from": "2020-01-01"}
    assert _found(given) == [later.pk, earlier.pk]
    assert _found(given | {"sort": "-id"}) == [earlier.pk, later.pk]
    assert _found({}) == [earlier.pk, later.pk]


def _found(given: dict[str, Any]) -> list[int]:
    found = AnalysisFilter(given, queryset=Analysis.objects.all()).qs
    return list(found.values_list("pk", flat=True))


def _add(owner: User, count: int) -> list[Analysis]:
    request = make_request()
    columns = {name: request[name] for name in ("model", "gpu", "precision", "optimizer")}
    return Analysis.objects.bulk_create(
        Analysis(owner=owner, request=request, **columns) for _ in range(count)
    )
