"""Keys that former admins and members have seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses.jobs import lease, notifications
from analyses.jobs.engine_output import Failure
from analyses.models import Channel, Notification
from analyses.notifications import channels, webhook
from analyses.tests.factories import make_analysis, make_user
from memorymark_site.accounts import invitations, links, members
from memorymark_site.accounts.roles import Role

NEW = "another horse 99"


@pytest.fixture
def ada(db: None) -> User:
    return _admin("ada")


@pytest.fixture
def eve(db: None) -> User:
    return _admin("eve")


def _admin(name: str) -> User:
    return make_user(name, is_staff=True, is_superuser=True)


def _comes_in(key: str) -> bool:
    words = {"username": "eve2", "email": "", "password1": NEW, "password2": NEW}
    answer = Client().post(f"/invitation/{key}/", words)
    assert answer.status_code in (302, 404)
    return User.objects.filter(username="eve2").exists()


def _is_demoted(admin: User, other: User) -> None:
    members.set_role(admin, other, Role.VIEWER)


LEAVING = [members.deactivate, _is_demoted]


@pytest.mark.parametrize("leave", LEAVING)
def test_an_invitation_created_for_oneself(
    ada: User, eve: User, leave: Callable[[User, User], object]
) -> None:
    """An admin who expects to leave would come back as another one."""
    _, key = invitations.invite(eve, Role.ADMIN)
    leave(ada, eve)
    assert not _comes_in(key)


def test_an_invitation_renewed_by_another_admin(ada: User, eve: User) -> None:
    invitation, _ = invitations.invite(ada, Role.ADMIN)
    key = invitations.renew(eve, invitation)
    members.deactivate(ada, eve)
    assert not _comes_in(key)
    assert _comes_in(invitations.renew(ada, invitation)), "who was to join still can"


def test_the_page_says_that_such_an_invitation_has_ended(ada: User, eve: User) -> None:
    invitations.invite(eve, Role.MEMBER, "grace@lab.example")
    page = Client()
    page.force_login(ada)
    assert ">over<" not in page.get("/members/").content.decode()
    members.deactivate(ada, eve)
    assert ">expired<" in page.get("/members/").content.decode()


@pytest.mark.parametrize("leave", LEAVING)
def test_a_password_reset_link_of_someone_else(
    ada: User, eve: User, leave: Callable[[User, User], object]
) -> None:
    """Anyone who has seen it could become that member, possibly an admin."""
    address = links.reset_path(eve, ada)
    assert Client().get(address).status_code == 302, "it works"
    leave(ada, eve)
    assert "password1" not in Client().get(address, follow=True).content.decode()


def test_a_password_reset_link_attributed_to_another_admin(ada: User, eve: User) -> None:
    """It is signed for its creator, so each admin's link to an account is different."""
    made = {links.reset_path(admin, eve) for admin in (ada, eve)}
    assert len(made) == 2


def test_a_notification_already_queued(
    ada: User, eve: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed notifications are retried for hours, but a former member's webhook is not called."""
    called: list[object] = []
    monkeypatch.setattr(webhook, "call", lambda *asked: called.append(asked))
    chosen = {"by_email": True, "by_webhook": True, "webhook_url": "https://evil.example/"}
    channels.save_choices(eve, chosen | {"only_after_seconds": 0})
    claim = lease.claim(make_analysis(eve).job.pk, "node-1")
    assert claim is not None
    lease.finish(claim, Failure("crashed", "The engine crashed."))
    assert Notification.objects.filter(channel=Channel.WEBHOOK).exists()
    members.deactivate(ada, eve)
    for notification in Notification.objects.all():
        notifications.deliver(notification.pk)
    assert called == []


def test_a_password_reset_link_from_before_a_deactivation(ada: User, eve: User) -> None:
    address = links.reset_path(ada, eve)
    members.deactivate(ada, eve)
    assert "password1" not in Client().get(address, follow=True).content.decode()
