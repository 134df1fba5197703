from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from analyses.tests.factories import make_user
from memorymark_site.accounts import links
from memorymark_site.accounts.models import Action, AuditEntry, SignIn
from memorymark_site.accounts.sessions import browser_of

pytestmark = pytest.mark.database

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
PASSWORD = "correct horse battery"  # noqa: S105  # of make_user


@pytest.fixture
def ada(db: None) -> User:
    return make_user("ada")


def _browser(name: str = "ada", agent: str = FIREFOX) -> Client:
    client = Client(headers={"User-Agent": agent})
    client.post("/accounts/login/", {"login": name, "password": PASSWORD})
    return client


def test_the_account_page_lists_your_sessions(ada: User) -> None:
    _browser(agent="curl/8")
    shown = _browser().get("/account/").content.decode()

    assert "Firefox on Linux" in shown
    assert "curl" in shown
    assert shown.count(">this browser<") == 1


def test_you_can_end_the_session_of_another_browser(ada: User) -> None:
    lost, here = _browser(), _browser()
    pk = SignIn.objects.order_by("pk")[0].pk
    here.post(f"/account/sessions/{pk}/end/")

    assert lost.get("/").status_code == 302
    assert here.get("/").status_code == 200
    assert AuditEntry.objects.get().action == Action.SESSIONS_ENDED


def test_you_can_end_all_other_sessions_together(ada: User) -> None:
    others = [_browser(), _browser()]
    here = _browser()
    shown = here.post("/account/sessions/end-others/", follow=True).content.decode()

    assert "2 other sessions ended" in shown
    assert [client.get("/").status_code for client in [*others, here]] == [302, 302, 200]


def test_another_members_session_cannot_be_ended(ada: User) -> None:
    make_user("eve")
    hers, eves = _browser(), _browser("eve")
    eves.post(f"/account/sessions/{SignIn.objects.get(user=ada).pk}/end/")
    eves.post("/account/sessions/end-others/")

    assert hers.get("/").status_code == 200


def test_a_new_password_signs_other_browsers_out(ada: User) -> None:
    other, here = _browser(), _browser()
    new = {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"}
    here.post("/account/password/", {"old_password": PASSWORD, **new})

    assert other.get("/").status_code == 302
    assert here.get("/account/").content.decode().count(">this browser<") == 1
    assert AuditEntry.objects.get().action == Action.PASSWORD_CHANGED


def test_sessions_ended_by_a_new_password_are_not_listed(ada: User) -> None:
    """A thief's browser that does not come back would look as if still signed in."""
    _browser(), _browser()
    new = {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"}
    here = _browser()
    here.post("/account/password/", {"old_password": PASSWORD, **new})
    assert SignIn.objects.count() == Session.objects.count() == 1

    ada.refresh_from_db()
    guest = Client()
    form = guest.get(links.reset_path(make_user("root", is_staff=True), ada))["Location"]
    guest.post(form, new)
    assert not SignIn.objects.exists()


def test_the_old_password_is_needed_for_a_new_one(ada: User) -> None:
    new = {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"}
    shown = _browser().post("/account/password/", {"old_password": "wrong", **new})

    assert shown.status_code == 200
    assert User.objects.get().check_password(PASSWORD)


def test_ended_sessions_are_not_listed_and_are_deleted(ada: User) -> None:
    _browser()
    Session.objects.all().delete()
    here = _browser()

    assert SignIn.objects.count() == 1
    assert "Firefox" in here.get("/account/").content.decode()


def test_expired_sessions_are_deleted_at_a_sign_in(ada: User) -> None:
    _browser()
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    _browser()

    assert Session.objects.count() == 1


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140 Safari/537 Edg/140", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18) Version/18 Safari/604", "Safari on iPhone"),
        ("", "an unknown browser"),
        ("<script>", "an unknown browser"),
    ],
)
def test_browsers_have_their_usual_names(agent: str, name: str) -> None:
    assert browser_of(agent) == name
