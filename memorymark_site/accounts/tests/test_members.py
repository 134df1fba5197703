from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from analyses.models import Status
from analyses.tests.factories import make_analysis, make_result, make_user, make_viewer
from memorymark_site.accounts import invitations, members
from memorymark_site.accounts.models import Action, ApiToken, AuditEntry, Invitation
from memorymark_site.accounts.pages.members import PAGE_SIZE
from memorymark_site.accounts.roles import Role, role_of
from memorymark_site.accounts.tests.mailing import wait_for_mail

pytestmark = pytest.mark.database

MEMBERS = "/members/"
ANSWERS = {
    "username": "grace",
    "email": "grace@lab.example",
    "password1": "Correct-horse-9",
    "password2": "Correct-horse-9",
}


@pytest.fixture
def admin(db: None) -> User:
    return make_user("ada", is_staff=True, is_superuser=True)


@pytest.fixture
def page(client: Client, admin: User) -> Client:
    client.force_login(admin)
    return client


def _fresh(user: User) -> User:
    return User.objects.get(pk=user.pk)


def _link_in(html: str) -> str:
    found = re.search(r'value="http://testserver(/[^"]+)"', html)
    assert found, html
    return found[1]


def _invite(page: Client, **fields: str) -> str:
    """Create an invitation; returns its link."""
    return _link_in(page.post(MEMBERS, {"role": "member", **fields}).content.decode())


def _log() -> list[tuple[str, str, str, str, str]]:
    fields = ("actor_name", "action", "what", "before", "after")
    return list(AuditEntry.objects.order_by("id").values_list(*fields))


@pytest.mark.parametrize("role", list(Role))
def test_an_invited_person_chooses_a_name_and_is_signed_in(page: Client, role: Role) -> None:
    address = _invite(page, role=role.value)
    guest = Client()

    assert role.label.lower() in guest.get(address).content.decode()
    assert guest.post(address, ANSWERS)["Location"] == "/"
    user = User.objects.get(username="grace")
    assert role_of(user) is role
    assert user.is_superuser is user.is_staff is (role is Role.ADMIN)
    assert user.email == "grace@lab.example"
    assert guest.get("/history/").status_code == 200
    assert [entry[1] for entry in _log()] == [Action.MEMBER_INVITED, Action.MEMBER_JOINED]


def test_the_key_is_not_sent_to_other_sites_and_the_form_still_works(page: Client) -> None:
    """With no-referrer, browsers send ``Origin: null``, which the CSRF check refuses."""
    assert Client().get(_invite(page))["Referrer-Policy"] == "same-origin"


def test_an_invitation_works_once(page: Client) -> None:
    address = _invite(page)
    Client().post(address, ANSWERS)
    again = Client().post(address, ANSWERS | {"username": "eve"})

    assert again.status_code == 404
    assert "already used" in again.content.decode()
    assert not User.objects.filter(username="eve").exists()


def test_only_one_of_two_simultaneous_guests_joins(admin: User) -> None:
    invitation, _ = invitations.invite(admin, Role.MEMBER)
    invitations.accept(invitation, "grace", "", "Correct-horse-9")

    with pytest.raises(invitations.InvitationEnded):
        invitations.accept(invitation, "eve", "", "Correct-horse-9")
    assert not User.objects.filter(username="eve").exists()


def test_an_invitation_expires(page: Client) -> None:
    address = _invite(page)
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert Client().get(address).status_code == 404
    assert Client().post(address, ANSWERS).status_code == 404
    assert "over" in page.get(MEMBERS).content.decode()


def test_a_revoked_invitation_does_not_work(page: Client) -> None:
    address = _invite(page)
    page.post(f"{MEMBERS}invitations/{Invitation.objects.get().pk}/revoke/")

    assert Client().post(address, ANSWERS).status_code == 404
    assert "Open invitations" not in page.get(MEMBERS).content.decode()


def test_a_new_link_replaces_the_old_one(page: Client) -> None:
    old = _invite(page)
    Invitation.objects.update(expires_at=timezone.now() - timedelta(days=1))
    pk = Invitation.objects.get().pk
    new = _link_in(page.post(f"{MEMBERS}invitations/{pk}/renew/").content.decode())

    assert Client().get(old).status_code == 404
    assert Client().get(new).status_code == 200


def test_the_key_is_not_stored(page: Client) -> None:
    key = _invite(page).rstrip("/").rsplit("/", 1)[1]
    stored = Invitation.objects.get()

    assert key not in (stored.digest, stored.email)
    assert key not in page.get(MEMBERS).content.decode()
    assert not AuditEntry.objects.filter(what__contains=key).exists()


@pytest.mark.parametrize("key", ["wrong", "x" * 500, "%FF", "\u0663"])
def test_a_wrong_key_opens_nothing(client: Client, db: None, key: str) -> None:
    assert client.get(f"/invitation/{key}/").status_code == 404


@pytest.mark.parametrize(
    "wrong", [{"username": "ADA"}, {"password2": "other-9"}, {"email": "none"}, {"username": ""}]
)
def test_mistakes_are_reported_and_the_link_still_works(
    page: Client, wrong: dict[str, str]
) -> None:
    address = _invite(page)
    guest = Client()

    assert "field-error" in guest.post(address, ANSWERS | wrong).content.decode()
    assert guest.post(address, ANSWERS).status_code == 302


def test_an_invitation_is_sent_by_email_if_set_up(page: Client) -> None:
    shown = page.post(MEMBERS, {"role": "viewer", "email": "grace@lab.example"}).content.decode()

    assert "We e-mailed it to grace@lab.example" in shown
    (sent,) = mail.outbox
    assert _link_in(shown) in sent.body
    assert sent.to == ["grace@lab.example"]


def test_without_email_the_page_shows_the_link(page: Client, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
    shown = page.post(MEMBERS, {"role": "viewer", "email": "grace@lab.example"}).content.decode()

    assert "end the link yourself" in shown
    assert _link_in(shown)


def test_a_person_with_an_account_is_not_invited(page: Client) -> None:
    make_user("grace", email="Grace@lab.example")
    shown = page.post(MEMBERS, {"role": "member", "email": "grace@lab.example"}).content.decode()

    assert "An account already uses this address" in shown
    assert not Invitation.objects.exists()


@pytest.mark.parametrize("role", list(Role))
def test_a_new_role_applies_from_the_next_request(page: Client, admin: User, role: Role) -> None:
    before = Role.MEMBER if role is Role.VIEWER else Role.VIEWER
    user = make_viewer("vera") if before is Role.VIEWER else make_user("vera")
    theirs = Client()
    theirs.force_login(user)
    page.post(f"{MEMBERS}{user.pk}/role/", {"role": role.value})

    assert role_of(_fresh(user)) is role
    assert theirs.get("/new/").status_code == (403 if role is Role.VIEWER else 200)
    assert theirs.get("/lab/").status_code == (200 if role is Role.ADMIN else 403)
    assert _log() == [("ada", Action.ROLE_CHANGED, "vera", before.value, role.value)]


def test_the_last_admin_cannot_leave(page: Client, admin: User) -> None:
    retired = make_user("old", is_staff=True, is_active=False)
    for address, sent in (("role", {"role": "viewer"}), ("deactivate", {})):
        shown = page.post(f"{MEMBERS}{admin.pk}/{address}/", sent, follow=True).content.decode()

        assert "last admin" in shown
        assert role_of(_fresh(admin)) is Role.ADMIN
    assert retired.is_staff
    assert _log() == []


def test_an_admin_can_leave_if_another_stays(page: Client, admin: User) -> None:
    make_user("bob", is_staff=True)
    page.post(f"{MEMBERS}{admin.pk}/role/", {"role": "member"})

    assert role_of(_fresh(admin)) is Role.MEMBER
    assert page.get(MEMBERS).status_code == 403


def test_an_invalid_role_or_account_changes_nothing(page: Client, admin: User) -> None:
    assert page.post(f"{MEMBERS}{admin.pk}/role/", {"role": "king"}).status_code == 404
    assert page.post(f"{MEMBERS}999999/role/", {"role": "member"}).status_code == 404


def test_a_deactivated_member_can_do_nothing_and_their_history_is_kept(
    page: Client, admin: User
) -> None:
    user = make_user("grace")
    analysis = make_analysis(user, Status.SUCCEEDED, make_result())
    _, token = ApiToken.objects.create(user=user)
    theirs = Client()
    theirs.login(username="grace", password="correct horse battery")
    script = Client(headers={"Authorization": f"Token {token}"})
    page.post(f"{MEMBERS}{user.pk}/deactivate/")

    assert theirs.get("/").status_code == 302
    assert script.get("/api/v1/analyses/").status_code == 401
    assert not Client().login(username="grace", password="correct horse battery")
    assert "grace" in page.get(f"/{analysis.pk}/").content.decode()
    page.post(f"{MEMBERS}{user.pk}/reactivate/")
    assert theirs.get("/").status_code == 302  # an old session does not work again
    assert script.get("/api/v1/analyses/").status_code == 401
    assert Client().login(username="grace", password="correct horse battery")
    assert [entry[1] for entry in _log()] == [Action.MEMBER_DEACTIVATED, Action.MEMBER_REACTIVATED]
    assert _log()[0][4] == "1 API tokens deleted"


def test_a_link_for_a_new_password_works_once(page: Client) -> None:
    user = make_user("grace")
    shown = page.post(f"{MEMBERS}{user.pk}/reset-link/").content.decode()
    theirs = Client()
    form = theirs.get(_link_in(shown))["Location"]
    new = {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"}

    assert theirs.post(form, new)["Location"] == "/accounts/login/"
    assert Client().login(username="grace", password="Another-horse-9")
    assert "already used" in Client().get(_link_in(shown)).content.decode()
    assert [entry[:2] for entry in _log()] == [
        ("ada", Action.RESET_LINK_MADE),
        ("grace", Action.PASSWORD_CHANGED),
    ]


def test_a_deactivated_member_gets_no_password_reset(page: Client) -> None:
    user = make_user("grace", is_active=False)
    shown = page.post(f"{MEMBERS}{user.pk}/reset-link/", follow=True).content.decode()

    assert "Reactivate grace first" in shown


def test_a_password_reset_does_not_reveal_who_has_an_account(client: Client, db: None) -> None:
    make_user("grace", email="grace@lab.example")
    said = [
        client.post("/accounts/forgotten/", {"email": f"{name}@lab.example"}, follow=True).content
        for name in ("grace", "nobody")
    ]

    assert b"If an account uses" in said[0]
    assert re.sub(rb'value="[^"]+"', b"", said[0]) == re.sub(rb'value="[^"]+"', b"", said[1])
    wait_for_mail()
    (sent,) = mail.outbox
    assert re.search(r"http://127\.0\.0\.1:\d+/accounts/reset/\S+", str(sent.body))


def test_without_email_an_admin_resets_passwords(
    client: Client, db: None, settings: Settings
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
    make_user("grace", email="grace@lab.example")
    shown = client.post("/accounts/forgotten/", {"email": "grace@lab.example"}).content.decode()

    assert "Ask a lab admin" in shown


def test_the_list_takes_the_same_number_of_queries_for_any_number(page: Client) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page.get(MEMBERS)
        return len(queries)

    def add(number: int) -> None:
        make_viewer(f"viewer{number}")
        invitations.invite(User.objects.get(username="ada"), Role.VIEWER)

    add(0)
    few = count()
    for number in range(1, 6):
        add(number)
    assert count() == few


def test_the_admin_site_cannot_create_accounts(page: Client) -> None:
    assert page.get("/admin/auth/user/").status_code == 404


def test_a_deactivated_members_role_cannot_change(admin: User) -> None:
    with pytest.raises(members.Inactive):
        members.set_role(admin, make_user("gone", is_active=False), Role.ADMIN)


def _names(html: str) -> list[str]:
    return re.findall(r'<th scope="row">([^< ]+)', html)


def test_members_are_listed_a_page_at_a_time_and_found_by_name_or_address(page: Client) -> None:
    for number in range(PAGE_SIZE):
        make_user(f"member{number:02}", email=f"m{number}@lab.example")
    first = page.get(MEMBERS).content.decode()
    assert f"{PAGE_SIZE + 1} accounts" in first
    assert len(_names(first)) == PAGE_SIZE
    last = f"member{PAGE_SIZE - 1:02}"
    assert _names(page.get(f"{MEMBERS}?page=2").content.decode()) == [last]
    assert _names(page.get(f"{MEMBERS}?q=MEMBER07").content.decode()) == ["member07"]
    assert _names(page.get(f"{MEMBERS}?q=m8@lab").content.decode()) == ["member08"]
    assert _names(page.get(f"{MEMBERS}?q=nobody").content.decode()) == []


def test_a_change_returns_to_the_members_that_were_listed(page: Client) -> None:
    user = make_user("grace")
    html = page.get(f"{MEMBERS}?q=grace&page=1").content.decode()
    action = f"/members/{user.pk}/role/?q=grace&amp;page=1"
    assert f'action="{action}"' in html
    answer = page.post(action.replace("&amp;", "&"), {"role": "viewer"})
    assert answer["Location"] == f"{MEMBERS}?q=grace&page=1"
