from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db.models import F
from django.test import Client, RequestFactory
from pytest_django import Settings

from analyses.tests.factories import make_user
from memorymark_site.accounts import devices, guessing, links, networks, throttle
from memorymark_site.accounts.models import Action, Attempt, AuditEntry, KnownNetwork
from memorymark_site.accounts.tests.mailing import wait_for_mail

pytestmark = pytest.mark.database

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse

LOGIN = "/accounts/login/"
RIGHT = "correct horse battery"


@pytest.fixture
def ada(db: None) -> User:
    return make_user("ada")


def _try(name: str, guess: str = "wrong", address: str = "192.0.2.1") -> _MonkeyPatchedWSGIResponse:
    return Client(REMOTE_ADDR=address).post(LOGIN, {"login": name, "password": guess})


def _wait(time: timedelta) -> None:
    Attempt.objects.update(at=F("at") - time)


def test_an_account_is_locked_in_a_network_after_ten_wrong_passwords_there(ada: User) -> None:
    for _ in range(10):
        assert _try("ada").status_code == 200
    refused = _try(" ADA", RIGHT)

    assert refused.status_code == 429
    assert _try("ada", RIGHT, address="198.51.100.7").status_code == 302
    assert 0 < int(refused["Retry-After"]) <= 900
    assert "Wait 15 minutes" in refused.content.decode()
    assert "sessionid" not in refused.cookies
    assert _try("eve").status_code == 200  # others can still sign in


def _hundred_guesses_from_ten_networks(name: str = "ada", prefix: str = "192.0.2") -> None:
    """Counted as the sign-in counts them, without a page for each."""
    for number in range(100):
        request = RequestFactory(REMOTE_ADDR=f"{prefix}.{number // 10}").post(LOGIN)
        assert throttle.take(throttle.of_sign_in(request, name)) == 0


@pytest.mark.slow
def test_an_account_is_locked_everywhere_after_a_hundred_wrong_passwords(ada: User) -> None:
    for number in range(100):
        assert _try("ada", address=f"192.0.2.{number // 10}").status_code == 200
    assert _try("ada", RIGHT, address="198.51.100.7").status_code == 429


def test_a_hundred_guesses_do_not_lock_an_account_where_members_sign_in(ada: User) -> None:
    make_user("eve")
    _known("eve", address="198.51.100.7")
    _hundred_guesses_from_ten_networks()
    assert _try("ada", RIGHT, address="198.51.100.8").status_code == 429
    assert _try("ada", "wrong", address="198.51.100.7").status_code == 200
    assert _try("ada", RIGHT, address="198.51.100.7").status_code == 302


@pytest.mark.longer
def test_known_networks_do_not_reveal_whose_account_exists(ada: User) -> None:
    _known("ada", address="198.51.100.7")
    for name in ("ada", "nobody"):
        _hundred_guesses_from_ten_networks(name, f"203.0.{len(name)}")
    answers = [
        [_try(name, address=address).status_code for address in ("198.51.100.7", "198.51.100.8")]
        for name in ("ada", "nobody")
    ]
    assert answers == [[200, 429], [200, 429]]


@pytest.mark.longer
def test_a_hundred_guesses_in_known_networks_lock_an_account_in_all_of_them(ada: User) -> None:
    for number in range(11):
        _known("ada", address=f"198.51.100.{number}")
    _hundred_guesses_from_ten_networks(prefix="198.51.100")
    assert _try("ada", RIGHT, address="198.51.100.10").status_code == 429


def test_a_network_is_forgotten_half_a_year_after_its_last_sign_in(ada: User) -> None:
    _known("ada", address="198.51.100.7")
    KnownNetwork.objects.update(at=F("at") - networks.KEPT)
    _hundred_guesses_from_ten_networks()
    assert _try("ada", RIGHT, address="198.51.100.7").status_code == 429


def test_old_networks_are_deleted(ada: User) -> None:
    _known("ada", address="198.51.100.7")
    KnownNetwork.objects.update(at=F("at") - networks.KEPT)
    _known("ada", address="198.51.100.8")
    assert KnownNetwork.objects.count() == 1


def _known(name: str, address: str = "192.0.2.1") -> Client:
    """A browser that has signed in to an account, and out again."""
    browser = Client(REMOTE_ADDR=address)
    assert browser.post(LOGIN, {"login": name, "password": RIGHT}).status_code == 302
    browser.post("/accounts/logout/")
    assert "sessionid" not in browser.session
    return browser


def test_nobody_locks_a_known_browser_out(ada: User) -> None:
    browser = _known("ada")
    _hundred_guesses_from_ten_networks()
    assert browser.post(LOGIN, {"login": "Ada", "password": "wrong"}).status_code == 200
    assert browser.post(LOGIN, {"login": "ada", "password": RIGHT}).status_code == 302


def test_a_known_browser_has_ten_guesses_in_whatever_network(ada: User) -> None:
    browser = _known("ada")
    for number in range(10):
        wrong = {"login": "ada", "password": "wrong"}
        assert browser.post(LOGIN, wrong, REMOTE_ADDR=f"192.0.2.{number}").status_code == 200
    assert browser.post(LOGIN, {"login": "ada", "password": RIGHT}).status_code == 429


def test_a_browser_is_known_for_its_own_account_only(ada: User) -> None:
    make_user("eve")
    browser = _known("eve")
    forged = browser.cookies[devices.COOKIE].value.replace(":", "x:", 1)
    for cookie in (browser.cookies[devices.COOKIE].value, forged, "", "a:b"):
        for _ in range(10):
            _try("ada")
        browser.cookies[devices.COOKIE] = cookie
        assert browser.post(LOGIN, {"login": "ada", "password": RIGHT}).status_code == 429
        Attempt.objects.all().delete()


@pytest.mark.django_db
def test_the_cookie_of_a_known_browser_is_kept_from_scripts_and_names_nobody() -> None:
    name = "no-hexadecimal-digits"  # as random ones may spell "ada"
    make_user(name)
    cookie = _known(name).cookies[devices.COOKIE]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert name not in cookie.value


def test_a_member_is_told_once_of_too_many_wrong_passwords(ada: User, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    User.objects.update(email="ada@lab.example")
    browser = _known("ada")
    for _ in range(12):
        _try("ADA")
    for _ in range(12):
        _try("nobody", address="192.0.2.2")
    wait_for_mail()

    (message,) = mail.outbox
    assert message.to == ["ada@lab.example"]
    assert "too many wrong passwords for ada" in message.body
    assert f"{settings.PUBLIC_URL}/account/" in message.body
    (entry,) = AuditEntry.objects.filter(action=Action.PASSWORDS_GUESSED)
    assert (entry.actor_name, entry.what) == ("", "ada")
    for is_told in (True, False):
        signed_in = browser.post(LOGIN, {"login": "ada", "password": RIGHT}, follow=True)
        assert (guessing.AT_SIGN_IN[:30] in signed_in.content.decode()) is is_told
        browser.post("/accounts/logout/")


def test_nine_wrong_passwords_are_nothing_to_tell(ada: User) -> None:
    for _ in range(9):
        _try("ada")
    assert not AuditEntry.objects.exists()


def test_a_lock_expires_and_attempts_do_not_extend_it(ada: User) -> None:
    for _ in range(10):
        _try("ada")
    _wait(timedelta(minutes=14))
    for _ in range(5):
        assert _try("ada", RIGHT).status_code == 429
    _wait(timedelta(minutes=2))

    assert _try("ada", RIGHT).status_code == 302


def test_an_address_is_locked_after_thirty_wrong_passwords(ada: User) -> None:
    for number in range(30):
        assert _try(f"guess{number}").status_code == 200

    assert _try("ada", RIGHT).status_code == 429
    assert _try("ada", RIGHT, address="192.0.2.2").status_code == 302


def test_the_right_password_resets_the_count(ada: User) -> None:
    for _ in range(3):
        for _ in range(9):
            _try("ada")
        assert _try("ada", RIGHT).status_code == 302


@pytest.mark.longer
def test_signing_in_to_your_own_account_allows_no_extra_guesses(ada: User) -> None:
    for number in range(30):
        assert _try(f"guess{number}").status_code == 200
        if number < 29:
            assert _try("ada", RIGHT).status_code == 302

    assert _try("guess").status_code == 429


def test_a_password_reset_unlocks_the_account(ada: User) -> None:
    for _ in range(10):
        _try("ada")
    guest = Client()
    form = guest.get(links.reset_path(make_user("root", is_staff=True), ada))["Location"]
    guest.post(form, {"new_password1": "Another-horse-9", "new_password2": "Another-horse-9"})

    assert _try("ada", "Another-horse-9").status_code == 302


def test_neither_names_nor_addresses_are_stored(ada: User) -> None:
    _try("my password, typed into the wrong field")

    for attempt in Attempt.objects.all():
        assert set(attempt.key) <= set("0123456789abcdef")
    assert Attempt.objects.count() == 3
    _known("ada", address="198.51.100.7")
    assert set(KnownNetwork.objects.get().digest) <= set("0123456789abcdef")


def test_old_attempts_are_deleted(ada: User) -> None:
    _try("eve")
    _wait(timedelta(minutes=16))
    _try("ada")

    assert Attempt.objects.count() == 3


def test_the_admin_site_has_the_same_login(ada: User, client: Client) -> None:
    response = client.get("/admin/", follow=True)
    assert response.redirect_chain[-1][0] == "/accounts/login/?next=/admin/"
    assert client.get("/admin/login/")["Location"] == "/accounts/login/?next=/admin/"
    assert client.post("/admin/login/", {"username": "ada", "password": RIGHT}).status_code == 405

    client.force_login(ada)
    assert client.get("/admin/", follow=True).status_code == 403


def test_the_number_of_password_resets_is_limited(ada: User) -> None:
    sent = {"email": "ada@lab.example"}
    for _ in range(5):
        assert Client().post("/accounts/forgotten/", sent).status_code == 302
    refused = Client().post("/accounts/forgotten/", sent)

    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0
    assert "Too many" in refused.content.decode()


@pytest.mark.parametrize(
    ("is_behind_proxy", "forwarded", "address"),
    [
        (False, "203.0.113.9", "192.0.2.1"),
        (True, "10.9.9.9, 203.0.113.9", "203.0.113.9"),
        (True, "", "192.0.2.1"),
        (True, "2001:db8::1", "2001:db8::/64"),
        (True, "2001:db8::2", "2001:db8::/64"),
        (True, "203.0.113.9:51234", "203.0.113.9"),
        (True, "[2001:db8::1]:51234", "2001:db8::/64"),
        (True, "::ffff:203.0.113.9", "203.0.113.9"),
        (True, "nonsense", "nonsense"),
    ],
)
def test_the_address_is_the_one_the_trusted_proxy_saw(
    settings: Settings, is_behind_proxy: bool, forwarded: str, address: str
) -> None:
    header = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_PROXY_SSL_HEADER = header if is_behind_proxy else None
    request = RequestFactory(REMOTE_ADDR="192.0.2.1").get(
        LOGIN, headers={"X-Forwarded-For": forwarded}
    )

    assert networks.address_of(request) == address
