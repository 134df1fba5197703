"""An authenticator app and recovery codes: set up, required, limited, removed, logged."""

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
    """The code of an app with this key, this many 30-second steps from now."""
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps)))


def _password(client: Client, name: str = "ada") -> _MonkeyPatchedWSGIResponse:
    return client.post(LOGIN, {"login": name, "password": PASSWORD})


def _set_up(client: Client) -> str:
    """Set up an app for the signed-in member; returns its key."""
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


@pytest.fixture(autouse=True)
def _no_step_ends_during_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock, since a code of the step before is too old once the next begins."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


@pytest.fixture
def ada(db: None) -> User:
    return make_user("ada")


@pytest.fixture
def here(ada: User) -> Client:
    """The browser in which the app was set up."""
    client = Client()
    _password(client)
    return client


@pytest.fixture
def secret(here: Client) -> str:
    return _set_up(here)


def test_the_password_alone_no_longer_signs_in(secret: str) -> None:
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


def test_the_second_step_continues_to_the_requested_page(secret: str) -> None:
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
def test_the_second_step_does_not_redirect_elsewhere(ada: User, wanted: str) -> None:
    sent = {"login": "ada", "password": PASSWORD, "next": wanted}

    assert Client().post(LOGIN, sent)["Location"] == "/"


def test_a_viewer_can_have_one_too(db: None) -> None:
    vera = make_viewer("vera")
    client = Client()
    _password(client, vera.username)

    assert _set_up(client)


def test_the_page_shows_the_key_as_a_qr_code_and_as_text(here: Client) -> None:
    shown = here.get(APP).content.decode()

    assert 'src="data:image/svg+xml;base64,' in shown
    assert re.search(r"<code>[A-Z2-7]{32}</code>", shown)


def test_an_app_without_the_key_is_not_accepted(here: Client) -> None:
    here.get(APP)
    shown = here.post(APP, {"code": "000000"})

    assert "Wrong or already used" in shown.content.decode()
    assert not Authenticator.objects.exists()


@pytest.mark.parametrize("typed", ["{}{}", "{} {}", "{}-{}"])
def test_a_code_only_works_once_across_processes(secret: str, typed: str) -> None:
    code = code_of(secret)
    first, second = Client(), Client()
    _password(first)
    _password(second)

    assert first.post(CODE, {"code": code}).status_code == 302
    cache.clear()  # like that of another process
    again = typed.format(code[:3], code[3:])
    assert "already used" in second.post(CODE, {"code": again}).content.decode()
    assert not _is_in(second)


def test_a_clock_may_be_off_by_at_most_half_a_minute(secret: str) -> None:
    client = Client()
    _password(client)

    assert client.post(CODE, {"code": code_of(secret, 3)}).status_code == 200
    assert client.post(CODE, {"code": code_of(secret, 1)}).status_code == 302


def test_attempts_are_limited_per_account_across_browsers(secret: str) -> None:
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


def test_the_second_step_needs_the_password_first(secret: str, client: Client) -> None:
    assert client.get(CODE)["Location"] == LOGIN
    assert client.post(CODE, {"code": code_of(secret)})["Location"] == LOGIN
    assert not _is_in(client)


def test_returning_to_the_sign_in_page_starts_over(secret: str) -> None:
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


def test_recovery_codes_can_be_downloaded(here: Client, secret: str) -> None:
    file = here.get(f"{CODES}download/")

    assert file["Content-Disposition"] == 'attachment; filename="recovery-codes.txt"'
    assert file["Cache-Control"].startswith("max-age=0")
    assert re.findall(r"(?m)^\d{8}$", file.content.decode()) == _codes(here)


def test_new_recovery_codes_replace_the_old_ones(here: Client, secret: str) -> None:
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


def test_a_removed_app_is_no_longer_required_and_its_codes_are_gone(
    here: Client, secret: str
) -> None:
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


def test_a_form_left_open_is_not_enough_either(here: Client, secret: str) -> None:
    session = here.session
    session.pop("account_authentication_methods")  # like a sign-in from before there were factors
    session.save()

    assert here.post(f"{APP}remove/")["Location"].startswith(f"{CONFIRM}?next=")
    assert Authenticator.objects.count() == 2


def test_confirming_a_password_shares_the_limit_of_signing_in(here: Client) -> None:
    device = here.cookies["memorymark_device"].value

    for number in range(10):
        answer = here.post(CONFIRM, {"password": "wrong"}, REMOTE_ADDR=f"192.0.2.{number}")
        assert answer.status_code == 200

    assert here.post(CONFIRM, {"password": PASSWORD}).status_code == 429
    same_browser = Client()
    same_browser.cookies["memorymark_device"] = device
    assert _password(same_browser).status_code == 429


def test_changing_a_password_shares_the_limit_of_signing_in(here: Client) -> None:
    new = {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"}
    for _ in range(10):
        here.post("/account/password/", {"old_password": "wrong", **new})

    assert here.post("/account/password/", {"old_password": PASSWORD, **new}).status_code == 429


def test_a_code_confirms_too_and_is_limited(here: Client, secret: str) -> None:
    address = f"{CONFIRM}code/?next=/account/"
    for _ in range(4):
        assert here.post(address, {"code": "000000"}).status_code == 200
    assert here.post(address, {"code": code_of(secret)})["Location"] == "/account/"
    for _ in range(5):
        here.post(address, {"code": "000000"})

    assert here.post(address, {"code": code_of(secret, 1)}).status_code == 429


def test_a_password_reset_does_not_bypass_it(ada: User, secret: str) -> None:
    client = Client()
    ada.refresh_from_db()
    form = client.get(links.reset_path(make_user("root", is_staff=True), ada))["Location"]
    new = {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"}

    assert client.post(form, new)["Location"] == LOGIN
    sent = {"login": "ada", "password": "Another-horse-9"}
    assert client.post(LOGIN, sent)["Location"] == CODE
    assert not _is_in(client)


def test_a_new_member_can_set_one_up_immediately(db: None) -> None:
    _, key = invitations.invite(make_user("root", is_staff=True), Role.MEMBER)
    client = Client()
    answers = {"username": "eve", "email": ""}
    passwords = {"password1": "Another-horse-9", "password2": "Another-horse-9"}

    assert client.post(f"/invitation/{key}/", answers | passwords)["Location"] == "/"
    assert _set_up(client)


def test_a_new_secret_key_locks_no_one_out(secret: str, settings: Settings) -> None:
    settings.SECRET_KEY = "another one, as after a leak or in a restored lab"  # noqa: S105  # of this test
    client = Client()
    _password(client)

    assert client.post(CODE, {"code": code_of(secret)}).status_code == 302
    assert _is_in(client)


def test_a_deactivated_member_does_not_pass_the_second_step(ada: User, secret: str) -> None:
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
def test_unused_pages_of_the_library_do_not_exist(here: Client, address: str) -> None:
    assert here.get(address).status_code == 404


@pytest.mark.parametrize("address", ["mfa/authenticator/", "account/emailaddress/"])
def test_the_admin_site_shows_no_keys(client: Client, db: None, address: str) -> None:
    client.force_login(make_user("root", is_staff=True, is_superuser=True))

    assert client.get("/admin/").status_code == 200
    assert client.get(f"/admin/{address}").status_code == 404
