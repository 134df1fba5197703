"""A member who leaves: asked first, handed over, and not mentioned to afterwards."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses import services
from analyses.leaving import CannotTakeOver, leave
from analyses.models import Analysis, CountedSavings, Job, SavedView, Status
from analyses.overview import changes
from analyses.tests.factories import make_analysis, make_training, make_user, make_viewer
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import ApiToken, AuditEntry, Scope

pytestmark = pytest.mark.database


@pytest.fixture
def admin(db: None) -> User:
    return make_user("ada", is_staff=True, is_superuser=True)


@pytest.fixture
def leaver(db: None) -> User:
    return make_user("eve")


@pytest.fixture
def page(client: Client, admin: User) -> Client:
    client.force_login(admin)
    return client


def _address(user: User) -> str:
    return f"/members/{user.pk}/deactivate/"


def _text(page: Client, address: str) -> str:
    return " ".join(page.get(address).content.decode().split())


def test_deactivating_asks_first_and_names_what_the_member_has(page: Client, leaver: User) -> None:
    undecided = make_analysis(leaver, Status.SUCCEEDED)
    adopted = make_analysis(leaver, Status.SUCCEEDED, workload_key="b")
    services.adopt(adopted, leaver)
    make_analysis(leaver, Status.FAILED)
    SavedView.objects.create(owner=leaver, name="Thesis", is_shared=True)
    tokens.create(leaver, "nightly", Scope.WRITE, 7)

    assert f'href="{_address(leaver)}"' in page.get("/members/").content.decode()
    text = _text(page, _address(leaver))
    leaver.refresh_from_db()
    assert leaver.is_active
    assert "1 analysis is not finished, or has a gain" in text
    assert f'href="/{undecided.pk}/"' in text
    assert f'href="/{adopted.pk}/"' not in text
    assert "Shared views: Thesis." in text
    assert "2 other analyses stay in the history" in text
    assert "programs that use them stop: nightly." in text


def test_what_needs_a_decision_goes_to_the_heir_and_the_rest_stays(
    page: Client, admin: User, leaver: User
) -> None:
    undecided = make_analysis(leaver, Status.SUCCEEDED, workload_key="a")
    queued = make_analysis(leaver, Status.QUEUED, workload_key="c")
    adopted = make_analysis(leaver, Status.SUCCEEDED, workload_key="b")
    services.adopt(adopted, leaver)
    run = make_training(undecided, verifies=False)
    SavedView.objects.create(owner=admin, name="Thesis")
    for name, shared in (("Thesis", True), ("Mine", False)):
        SavedView.objects.create(owner=leaver, name=name, is_shared=shared)
    tokens.create(leaver, "nightly", Scope.WRITE, 7)

    answer = page.post(_address(leaver), {"heir": admin.pk}, follow=True)
    assert "What needs a decision is now ada" in answer.content.decode()
    owners = dict(Analysis.objects.values_list("pk", "owner__username"))
    assert owners == {undecided.pk: "ada", queued.pk: "ada", adopted.pk: "eve"}
    run.refresh_from_db()
    assert run.owner == admin
    assert Job.objects.get(analysis=queued).owner == admin
    assert CountedSavings.objects.get(analysis=undecided).member == admin
    views = set(SavedView.objects.values_list("owner__username", "name"))
    assert views == {("ada", "Thesis"), ("ada", "Thesis (eve)"), ("eve", "Mine")}
    leaver.refresh_from_db()
    assert not leaver.is_active
    assert not ApiToken.objects.filter(user=leaver).exists()
    entry = AuditEntry.objects.get(action="member_deactivated")
    assert "2 analyses and 1 shared views handed over to ada" in entry.after


def test_nothing_has_to_be_handed_over(page: Client, leaver: User) -> None:
    kept = make_analysis(leaver, Status.SUCCEEDED)
    page.post(_address(leaver))

    kept.refresh_from_db()
    leaver.refresh_from_db()
    assert kept.owner == leaver
    assert not leaver.is_active


@pytest.mark.parametrize("heir", ["0", "x", "\0", "9" * 30, "٣", "-1"])
def test_an_heir_that_there_is_not_changes_nothing(page: Client, leaver: User, heir: str) -> None:
    page.post(_address(leaver), {"heir": heir})
    leaver.refresh_from_db()
    assert leaver.is_active


def test_who_only_reads_and_who_leaves_cannot_take_over(admin: User, leaver: User) -> None:
    for heir in (make_viewer("vera"), leaver, make_user("otto", is_active=False)):
        with pytest.raises(CannotTakeOver):
            leave(admin, leaver, heir)
    leaver.refresh_from_db()
    assert leaver.is_active


def test_the_last_admin_stays_and_keeps_everything(page: Client, admin: User) -> None:
    own, heir = make_analysis(admin, Status.SUCCEEDED), make_user("grace")
    answer = page.post(_address(admin), {"heir": heir.pk}, follow=True)

    assert "last admin" in answer.content.decode()
    own.refresh_from_db()
    assert own.owner == admin


def test_no_mention_to_a_member_who_left_is_offered_or_taken(
    page: Client, admin: User, leaver: User
) -> None:
    analysis = make_analysis(leaver, Status.SUCCEEDED)
    for address in ("/", "/savings/"):
        assert f'action="/{analysis.pk}/mention/"' in _text(page, address)
    leave(admin, leaver, None)

    for address in ("/", "/savings/"):
        text = _text(page, address)
        assert f'action="/{analysis.pk}/mention/"' not in text
        assert "left the lab" in text
    analysis.refresh_from_db()
    with pytest.raises(LookupError, match="eve has left the lab"):
        changes.mention(Analysis.objects.get(pk=analysis.pk), admin)
