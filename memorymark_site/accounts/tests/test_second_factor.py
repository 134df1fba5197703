"""An authenticator app and recovery codes: set up, asked for, bounded, removed, noted."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db.models import F
from django.test import Client
from pytest_django import Settings

from analyses.tests.factories import make_user, make_viewer
from memorymark_site.accounts import invitations, links
from memorymark_site.accounts.models import Action, Attempt, AuditEntry, SignIn
from memorymark_site.accounts.roles import Role
from memorymark_site.accounts.throttle import WINDOW

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse

LOGIN, CODE, APP = "/accounts/login/", "/accounts/login/code/", "/account/app/"
CODES, CONFIRM = "/account/recovery-codes/", "/account/confirm/"
PASSWORD = "correct horse battery"  # noqa: S105  # of make_user


def code_of(secret: str, steps: int = 0) -> str:
    """What an app with this key shows, so many steps of 30 seconds from now."""
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps)))


def _password(client: Client, name: str = "ada") -> _MonkeyPatchedWSGIResponse:
    return client.post(LOGIN, {"login": name, "password": PASSWORD})


def _set_up(client: Client) -> str:
    """Set up an app with who is signed in; returns its key."""
    shown = client.get(APP).content.decode()
    found = re.search(r"<code>([A-Z2-7]{32})</code>", shown)
    assert found, shown
    assert client.post(APP, {"code": code_of(found[1], -1)})["Location"] == CODES
    return found[1]


def _codes(client: Client) -> list[str]:
    return re.findall(r"<li><code>(\d{8})</code>", client.get(CODES).content.decode())


def _log() -> list[tuple[str, str, str, str]]:
    fields = ("actor_name", "action", "before", "after")
    return list(AuditEntry.objects.order_by("id").values_list(*fields))


def _is_in(client: Client) -> bool:
    return client.get("/").status_code == 200


@pytest.fixture
def ada(db: None) -> User:
    return make_user("ada")


@pytest.fixture
def here(ada: User) -> Client:
    """The browser in which the app is set up."""
    client = Client()
    _password(client)
    return client


@pytest.fixture
def secret(here: Client) -> str:
    return _set_up(here)


def test_the_password_alone_does_not_sign_in_any_more(secret: str) -> None:
    client = Client()

    assert _password(client)["Location"] == CODE
    assert not _is_in(client)
    assert (
        not SignIn.objects.exclude(session_key="")
        .filter(session_key=client.session.session_key)
        .exists()
    )
    assert client.post(CODE, {"code": code_of(secret)})["Location"] == "/"
    assert _is_in(client)


def test_it_leads_on_to_where_one_wanted_to_go(secret: str) -> None:
    client = Client()
    sent = {"login": "ada", "password": PASSWORD, "next": "/history/"}
    client.post(LOGIN, sent)

    assert client.post(CODE, {"code": code_of(secret)})["Location"] == "/history/"


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/",
        "//evil.example/",
        "http://localhost/",
        "javascript:alert(1)",
        "\\\\x",
    ],
)
def test_a_sign_in_leads_nowhere_else(ada: User, wanted: str) -> None:
    sent = {"login": "ada", "password": PASSWORD, "next": wanted}

    assert Client().post(LOGIN, sent)["Location"] == "/"


def test_a_viewer_can_have_one_too(db: None) -> None:
    vera = make_viewer("vera")
    client = Client()
    _password(client, vera.username)

    assert _set_up(client)


def test_the_page_shows_the_key_as_a_picture_and_as_text(here: Client) -> None:
    shown = here.get(APP).content.decode()

    assert 'src="data:image/svg+xml;base64,' in shown
    assert re.search(r"<code>[A-Z2-7]{32}</code>", shown)


def test_an_app_that_has_not_the_key_is_not_taken(here: Client) -> None:
    here.get(APP)
    shown = here.post(APP, {"code": "000000"})

    assert "Wrong or already used" in shown.content.decode()
    assert not Authenticator.objects.exists()


@pytest.mark.parametrize("typed", ["{}{}", "{} {}", "{}-{}"])
def test_a_code_signs_in_once_in_whatever_process_it_is_tried(secret: str, typed: str) -> None:
    code = code_of(secret)
    first, second = Client(), Client()
    _password(first)
    _password(second)

    assert first.post(CODE, {"code": code}).status_code == 302
    cache.clear()  # as that of another process
    again = typed.format(code[:3], code[3:])
    assert "already used" in second.post(CODE, {"code": again}).content.decode()
    assert not _is_in(second)


def test_a_clock_may_be_half_a_minute_off_and_no_more(secret: str) -> None:
    client = Client()
    _password(client)

    assert client.post(CODE, {"code": code_of(secret, 3)}).status_code == 200
    assert client.post(CODE, {"code": code_of(secret, 1)}).status_code == 302


def test_codes_are_bounded_for_the_account_whatever_the_browser(secret: str) -> None:
    for _ in range(5):
        guesser = Client(REMOTE_ADDR="192.0.2.1")
        _password(guesser)
        assert guesser.post(CODE, {"code": "000000"}).status_code == 200
    client = Client()
    _password(client)
    refused = client.post(CODE, {"code": code_of(secret)})

    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 900
    assert not _is_in(client)
    Attempt.objects.update(at=F("at") - WINDOW)
    assert client.post(CODE, {"code": code_of(secret)}).status_code == 302


def test_nobody_gets_to_the_second_step_past_the_password(secret: str, client: Client) -> None:
    assert client.get(CODE)["Location"] == LOGIN
    assert client.post(CODE, {"code": code_of(secret)})["Location"] == LOGIN
    assert not _is_in(client)


def test_who_comes_back_to_the_sign_in_page_begins_anew(secret: str) -> None:
    client = Client()
    _password(client)

    assert client.get(LOGIN).status_code == 200
    assert client.post(CODE, {"code": code_of(secret)})["Location"] == LOGIN


def test_a_recovery_code_signs_in_once(here: Client, secret: str) -> None:
    codes = _codes(here)
    assert len(set(codes)) == 10
    client, again = Client(), Client()
    _password(client)
    assert client.post(CODE, {"code": codes[0]}).status_code == 302
    _password(again)

    assert again.post(CODE, {"code": codes[0]}).status_code == 200
    assert _codes(here) == codes[1:]
    assert _log()[-1] == ("ada", Action.RECOVERY_CODE_USED, "", "9 left")
    assert "9 left" in here.get("/account/").content.decode()


def test_recovery_codes_come_as_a_file_too(here: Client, secret: str) -> None:
    file = here.get(f"{CODES}download/")

    assert file["Content-Disposition"] == 'attachment; filename="recovery-codes.txt"'
    assert file["Cache-Control"].startswith("max-age=0")
    assert re.findall(r"(?m)^\d{8}$", file.content.decode()) == _codes(here)


def test_new_recovery_codes_end_the_old_ones(here: Client, secret: str) -> None:
    old = _codes(here)
    here.post(f"{CODES}new/")

    assert not set(old) & set(_codes(here))
    client = Client()
    _password(client)
    assert client.post(CODE, {"code": old[0]}).status_code == 200
    assert _log()[-1][1] == Action.RECOVERY_CODES_MADE


def test_there_are_no_recovery_codes_without_a_factor(here: Client) -> None:
    assert here.get(CODES).status_code == 404
    assert here.post(f"{CODES}new/").status_code == 200
    assert not Authenticator.objects.exists()


def test_removed_it_is_asked_for_no_more_and_its_codes_are_gone(here: Client, secret: str) -> None:
    assert here.post(f"{APP}remove/")["Location"] == "/account/"
    client = Client()

    assert _password(client)["Location"] == "/"
    assert not Authenticator.objects.exists()
    assert [entry[1:] for entry in _log()] == [
        (Action.FACTOR_ADDED, "", "authenticator app"),
        (Action.RECOVERY_CODES_MADE, "", ""),
        (Action.FACTOR_REMOVED, "authenticator app", ""),
    ]


@pytest.mark.parametrize("address", [APP, f"{APP}remove/", CODES, f"{CODES}new/"])
def test_an_open_browser_is_not_enough_to_change_it(
    here: Client, secret: str, address: str
) -> None:
    session = here.session
    for record in session["account_authentication_methods"]:
        record["at"] -= 601
    session.save()
    if address == APP:
        Authenticator.objects.all().delete()

    assert here.get(address)["Location"].startswith(f"{CONFIRM}?next=")
    assert here.post(CONFIRM, {"password": "wrong"}).status_code == 200
    assert here.post(f"{CONFIRM}?next={address}", {"password": PASSWORD}).status_code == 302
    assert here.get(address).status_code == 200


def test_neither_is_a_form_that_was_open(here: Client, secret: str) -> None:
    session = here.session
    session.pop("account_authentication_methods")  # as of a sign-in before there were factors
    session.save()

    assert here.post(f"{APP}remove/")["Location"].startswith(f"{CONFIRM}?next=")
    assert Authenticator.objects.count() == 2


def test_the_password_asked_for_again_is_bounded_with_that_of_signing_in(here: Client) -> None:
    for number in range(10):
        answer = here.post(CONFIRM, {"password": "wrong"}, REMOTE_ADDR=f"192.0.2.{number}")
        assert answer.status_code == 200

    assert here.post(CONFIRM, {"password": PASSWORD}).status_code == 429
    assert _password(Client()).status_code == 429


def test_so_is_the_old_password_where_one_sets_a_new_one(here: Client) -> None:
    new = {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"}
    for _ in range(10):
        here.post("/account/password/", {"old_password": "wrong", **new})

    assert here.post("/account/password/", {"old_password": PASSWORD, **new}).status_code == 429


def test_a_code_confirms_as_well_and_is_bounded(here: Client, secret: str) -> None:
    address = f"{CONFIRM}code/?next=/account/"
    for _ in range(4):
        assert here.post(address, {"code": "000000"}).status_code == 200
    assert here.post(address, {"code": code_of(secret)})["Location"] == "/account/"
    for _ in range(5):
        here.post(address, {"code": "000000"})

    assert here.post(address, {"code": code_of(secret, 1)}).status_code == 429


def test_a_link_for_a_new_password_does_not_get_past_it(ada: User, secret: str) -> None:
    client = Client()
    ada.refresh_from_db()
    form = client.get(links.reset_path(make_user("root", is_staff=True), ada))["Location"]
    new = {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"}

    assert client.post(form, new)["Location"] == LOGIN
    sent = {"login": "ada", "password": "Another-horse-9"}
    assert client.post(LOGIN, sent)["Location"] == CODE
    assert not _is_in(client)


def test_who_comes_by_invitation_may_set_one_up_at_once(db: None) -> None:
    _, key = invitations.invite(make_user("root", is_staff=True), Role.MEMBER)
    client = Client()
    answers = {"username": "eve", "email": ""}
    passwords = {"password1": "Another-horse-9", "password2": "Another-horse-9"}

    assert client.post(f"/invitation/{key}/", answers | passwords)["Location"] == "/"
    assert _set_up(client)


def test_a_new_secret_key_locks_nobody_out(secret: str, settings: Settings) -> None:
    settings.SECRET_KEY = "another one, as after a leak or in a restored lab"  # noqa: S105  # of this test
    client = Client()
    _password(client)

    assert client.post(CODE, {"code": code_of(secret)}).status_code == 302
    assert _is_in(client)


def test_nobody_deactivated_passes_the_second_step(ada: User, secret: str) -> None:
    client = Client()
    _password(client)
    User.objects.filter(pk=ada.pk).update(is_active=False)
    client.post(CODE, {"code": code_of(secret)})

    assert not _is_in(client)


def test_the_secret_is_on_no_other_page_and_not_in_the_log(here: Client, secret: str) -> None:
    assert secret not in here.get("/account/").content.decode()
    assert not AuditEntry.objects.filter(after__contains=secret).exists()


@pytest.mark.parametrize(
    "address",
    ["/accounts/signup/", "/accounts/email/", "/accounts/password/set/", "/accounts/inactive/"],
)
def test_what_nobody_wants_of_the_library_is_not_there(here: Client, address: str) -> None:
    assert here.get(address).status_code == 404


@pytest.mark.parametrize("address", ["mfa/authenticator/", "account/emailaddress/"])
def test_djangos_admin_site_shows_no_keys(client: Client, db: None, address: str) -> None:
    client.force_login(make_user("root", is_staff=True, is_superuser=True))

    assert client.get("/admin/").status_code == 200
    assert client.get(f"/admin/{address}").status_code == 404
