"""Totals are added up once, and again as soon as counted savings change."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from pytest_django import DjangoAssertNumQueries

from analyses import services
from analyses.models import SavingsChange, Status
from analyses.savings import kept
from analyses.savings.selected import Selected, selected_by
from analyses.tests.factories import make_analysis, make_request, make_training

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def _selected(user: User, **query: str) -> Selected:
    return selected_by(user, query)


def test_the_same_totals_are_read_once(
    member: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_analysis(member, Status.SUCCEEDED)
    first = _selected(member)
    rows, ledger = first.rows(), first.ledger()
    with django_assert_num_queries(1):  # the version
        again = _selected(member)
        assert again.rows() is rows
        assert again.ledger() is ledger


def test_an_adoption_an_answer_and_a_training_run_count_at_once(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, usd_per_year=100.0)
    seen = [_selected(member).rows()[0].totals]
    services.adopt(analysis, member)
    seen.append(_selected(member).rows()[0].totals)
    assert [totals.realised.usd_per_year > 0 for totals in seen] == [False, True]
    make_training(analysis, hours=5)
    assert _selected(member).ledger().totals[-1].runs == 1
    make_analysis(member, Status.SUCCEEDED, request=make_request(gpu="t4"))
    assert _selected(member).rows()[0].totals.workloads == 2


def test_filters_and_periods_have_totals_of_their_own(member: User) -> None:
    make_analysis(member, Status.SUCCEEDED)
    assert _selected(member, member="grace").rows()
    assert not _selected(member, member="nobody").rows()
    assert _selected(member, period="month").rows() is not _selected(member).rows()
    assert _selected(member, period="month").ledger() is _selected(member).ledger()


def test_who_may_not_see_the_lab_gets_no_kept_totals(member: User) -> None:
    make_analysis(member, Status.SUCCEEDED)
    assert _selected(member).rows()
    member.is_active = False
    assert _selected(member).rows() == []


def test_only_the_last_changes_are_stored(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    monkeypatch.setattr(kept, "_CHANGES", 5)
    seen = set()
    for _ in range(40):
        kept.forget()
        seen.add(kept.version())
    assert len(seen) == 40
    assert SavingsChange.objects.count() <= 10
