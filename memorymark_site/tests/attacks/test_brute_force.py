"""Guessing: passwords, tokens, keys in links, and who has an account.

What is counted, and for how long, is in memorymark_site/accounts/tests/test_throttle.py.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import ClassVar
from urllib.parse import urlencode

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.test import Client
from pytest_django import Settings

from analyses.models import Status
from analyses.pages.analysis import sharing
from analyses.tests.factories import make_analysis, make_user
from memorymark_site.accounts import devices, invitations, members
from memorymark_site.accounts.models import ApiToken
from memorymark_site.accounts.roles import Role
from memorymark_site.accounts.tests.mailing import wait_for_mail
from memorymark_site.tests.attacks.serving import (
    NAME,
    NAME_FIELD,
    PASSWORD,
    Answer,
    Site,
    credentials,
)

pytestmark = pytest.mark.database

LOGIN = "/accounts/login/"
RIGHT = "correct horse battery"
OTHER = "another horse 99"
CSRF = "c" * 32


@pytest.fixture
def ada(db: None) -> User:
    return make_user("ada", email="ada@lab.example")


def _guesses(names: Iterator[str] | list[str], **client: str) -> list[int]:
    return [
        Client(**client).post(LOGIN, credentials(name, f"guess {number}")).status_code  # type: ignore[arg-type]  # the stubs know no header by name
        for number, name in enumerate(names)
    ]


def test_many_passwords_for_one_name(ada: User) -> None:
    assert _guesses(["ada"] * 15) == [200] * 10 + [429] * 5
    assert Client().post(LOGIN, credentials("ada", RIGHT)).status_code == 429


@pytest.mark.longer
@pytest.mark.parametrize(
    "spellings",
    [["ada", "ADA", "Ada", " ada", "ada ", "\tada", "\uff41da", "aDa"], ["ada\0", "ada\n"]],
)
def test_one_name_spelled_in_many_ways(ada: User, spellings: list[str]) -> None:
    """Each spelling would have its own ten attempts where the database treats them as equal."""
    answers = _guesses(spellings * 12, REMOTE_ADDR="192.0.2.1")
    assert answers[-1] == 429
    assert answers.count(200) <= 30  # the limit per address


@pytest.mark.parametrize("name", ["strau\u00df", "STRAUSS", "\uff53trauss"])
def test_your_own_name_that_counts_as_anothers(db: None, name: str) -> None:
    """A right password under it would reset the wrong ones for the other, each time."""
    make_user("strauss")
    _, key = invitations.invite(make_user("root", is_staff=True), Role.MEMBER)
    words = {"username": name, "email": "", "password1": OTHER, "password2": OTHER}
    answer = Client().post(f"/invitation/{key}/", words)
    assert answer.status_code == 200
    assert "Choose another" in answer.content.decode()
    assert not User.objects.filter(username=name).exists()


def test_a_name_that_takes_minutes_to_normalize(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalizing many combining marks takes quadratic time and blocks the whole process."""
    lengths = []

    def normalized(form: str, text: str) -> str:
        lengths.append(len(text))
        return unicodedata.normalize(form, text)  # type: ignore[arg-type]  # a form as the stubs name it

    monkeypatch.setattr(members, "unicodedata", SimpleNamespace(normalize=normalized))
    name = "a" + "\u0300\u0316" * 500_000
    assert Client().post(LOGIN, credentials(name, "guess")).status_code == 200
    assert lengths
    assert max(lengths) <= 150


def test_one_password_for_many_names(db: None) -> None:
    """Spraying, from one address."""
    answers = _guesses([f"name{number}" for number in range(35)])
    assert answers == [200] * 30 + [429] * 5


def test_the_old_password_in_djangos_admin_site(db: None) -> None:
    """In an open browser it could be guessed there without a limit, and changed unlogged."""
    make_user("root", is_staff=True, is_superuser=True)
    found = Client()
    found.post(LOGIN, credentials("root", RIGHT))
    for guess in [*(f"guess {number}" for number in range(11)), RIGHT]:
        words = {"old_password": guess, "new_password1": OTHER, "new_password2": OTHER}
        answer = found.post("/admin/password_change/", words)
        assert answer.get("Location") == "/account/password/"
    assert User.objects.get().check_password(RIGHT)


def test_ipv4_visitors_of_an_ipv6_server_are_separate(ada: User) -> None:
    """It sees them as ``::ffff:…``, all in one /64: one attacker would lock out everyone."""
    assert (
        _guesses([f"name{number}" for number in range(31)], REMOTE_ADDR="::ffff:203.0.113.7")[-1]
        == 429
    )
    member = Client(REMOTE_ADDR="::ffff:198.51.100.9")
    assert member.post(LOGIN, credentials("ada", RIGHT)).status_code == 302
    thirty_more = _guesses(["eve"] * 2, REMOTE_ADDR="203.0.113.7")
    assert thirty_more == [429] * 2, "the same address, however it is written"


@pytest.mark.slow
def test_many_passwords_at_once(db: None, site: Site) -> None:
    """On a real server, each claiming a new address: only the proxy's header counts."""
    head = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": f"csrftoken={CSRF}",
        "Referer": f"https://{NAME}/",
    }
    statuses = []
    for number in range(33):
        body = f"csrfmiddlewaretoken={CSRF}&{NAME_FIELD}=spray{number}&password=guess".encode()
        claimed = {
            "X-Forwarded-For": f"10.0.0.{number}, 203.0.113.77",
            "X-Real-IP": f"10.9.0.{number}",
        }
        statuses.append(site.ask("POST", LOGIN, body, head | claimed).status)
    assert statuses == [200] * 30 + [429] * 3


@pytest.mark.slow
def test_guessing_from_a_members_own_network_does_not_keep_the_member_out(
    db: None, site: Site
) -> None:
    """On a real server, whose cookie of a browser that has signed in before is marked secure."""
    head = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Referer": f"https://{NAME}/",
        "X-Forwarded-For": "203.0.113.88",
    }

    def sign_in(password: str, device: str = "") -> Answer:
        body = urlencode({"csrfmiddlewaretoken": CSRF} | credentials("olga", password))
        cookies = {"Cookie": f"csrftoken={CSRF}; {device}"}
        return site.ask("POST", LOGIN, body.encode(), head | cookies)

    first = sign_in(PASSWORD)
    (cookie,) = [
        line
        for line in first.headers.get_all("Set-Cookie", [])
        if line.startswith(f"{devices.COOKIE}=")
    ]
    assert {"Secure", "HttpOnly"} <= set(cookie.split("; "))
    assert [sign_in("guess").status for _ in range(11)] == [200] * 10 + [429]
    assert sign_in(PASSWORD).status == 429
    assert sign_in(PASSWORD, cookie.partition(";")[0]).status == 302


@pytest.fixture
def keys(ada: User) -> dict[str, Callable[[str], str]]:
    """Addresses that contain a key, by what they open."""
    _, shared = sharing.create_link(make_analysis(ada, Status.SUCCEEDED), ada, 1)
    _, invited = invitations.invite(make_user("root", is_staff=True), Role.ADMIN)
    return {
        f"/shared/{shared}/": lambda key: f"/shared/{key}/",
        f"/invitation/{invited}/": lambda key: f"/invitation/{key}/",
    }


def test_keys_in_links_are_long_and_must_match_exactly(
    keys: dict[str, Callable[[str], str]],
) -> None:
    guest = Client()
    for right, address in keys.items():
        key = right.rstrip("/").rpartition("/")[2]
        assert len(key) >= 43, "256 bits"
        assert guest.get(right).status_code == 200
        for wrong in (key[:-1], key + "A", _another(key), key.lower(), "%", "*", "a" * 3_000):
            assert guest.get(address(wrong)).status_code == 404, wrong


def _another(key: str) -> str:
    return ("B" if key[0] == "A" else "A") + key[1:]


def test_the_prefix_of_a_token_does_not_work(ada: User) -> None:
    """The prefix is shown on pages and in the audit log."""
    stored, token = ApiToken.objects.create(user=ada)
    assert len(token) > 60
    for guess in (
        stored.token_key, stored.digest, f"mm_{stored.token_key}", token[:-1], token + "0",
        token.upper(), "mm_", "", "*", "a" * 5_000,
    ):  # fmt: skip
        for scheme in ("Token", "Bearer", "Basic"):
            answer = Client().get(
                "/api/v1/analyses/", headers={"Authorization": f"{scheme} {guess}"}
            )
            assert answer.status_code == 401, (scheme, guess)
    assert token not in stored.digest


# Who has an account


def test_a_wrong_name_and_a_wrong_password_get_the_same_response(ada: User) -> None:
    User.objects.create_user("locked", password=RIGHT, is_active=False)
    pages = [
        Client(REMOTE_ADDR="192.0.2.9").post(LOGIN, credentials(name, password)).content.decode()
        for name, password in (("ada", "wrong"), ("nobody", "wrong"), ("locked", RIGHT))
    ]
    alike = {_without(page, ("ada", "nobody", "locked")) for page in pages}
    assert len(alike) == 1


def test_the_limit_is_the_same_for_unknown_names(ada: User) -> None:
    """Otherwise the status 429 would reveal which names exist."""
    assert _guesses(["ada"] * 12) == _guesses(["nobody"] * 12, REMOTE_ADDR="192.0.2.3")


def test_a_password_reset_responds_the_same_for_any_name(ada: User, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    said = []
    for address in ("ada@lab.example", "nobody@lab.example"):
        guest = Client()
        answer = guest.post("/accounts/forgotten/", {"email": address}, follow=True)
        said.append(_without(answer.content.decode(), ()))
    wait_for_mail()
    assert said[0] == said[1]
    assert len(mail.outbox) == 1


class SlowMailServer(BaseEmailBackend):
    """A mail server that accepts messages when released, or after a while."""

    told = threading.Event()
    taken: ClassVar[list[bool]] = []

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Accept the messages."""
        self.taken.append(self.told.wait(timeout=60))
        return len(email_messages)


def test_a_password_reset_takes_as_long_for_any_name(ada: User, settings: Settings) -> None:
    """The response does not wait for the mail server, which only existing accounts need."""
    settings.EMAIL_BACKEND = f"{__name__}.{SlowMailServer.__name__}"
    assert Client().post("/accounts/forgotten/", {"email": ada.email}).status_code == 302
    SlowMailServer.told.set()
    wait_for_mail()
    assert SlowMailServer.taken == [True]


def test_an_invitation_does_not_reveal_which_names_are_taken(ada: User) -> None:
    """Without a valid key, the name is not checked."""
    for name in ("ada", "nobody"):
        words = {"username": name, "email": "", "password1": RIGHT, "password2": RIGHT}
        assert Client().post("/invitation/none/", words).status_code == 404


def test_an_unknown_name_takes_as_long(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing takes the time, so it is also done when there is nothing to compare."""
    make_user("locked", is_active=False)
    hashed: list[str] = []
    encode = MD5PasswordHasher.encode

    def counted(self: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return encode(self, password, salt)

    monkeypatch.setattr(MD5PasswordHasher, "encode", counted)
    counts = []
    for name in ("ada", "nobody", "locked"):
        hashed.clear()
        Client().post(LOGIN, credentials(name, "wrong"))
        counts.append(len(hashed))
    assert counts[0] >= 1
    assert len(set(counts)) == 1, counts


def _without(page: str, names: tuple[str, ...]) -> str:
    """A page without the parts that differ between requests."""
    for name in names:
        page = page.replace(f'value="{name}"', "")
    lines = page.splitlines()
    return "\n".join(line for line in lines if "csrfmiddlewaretoken" not in line)


# Sessions


def test_a_session_key_chosen_by_the_attacker(ada: User) -> None:
    """Session fixation: signing in changes the session key."""
    victim = Client()
    victim.cookies["sessionid"] = "a" * 32
    victim.post(LOGIN, credentials("ada", RIGHT))
    key = victim.cookies["sessionid"].value
    assert key != "a" * 32
    attacker = Client()
    attacker.cookies["sessionid"] = "a" * 32
    assert attacker.get("/account/").status_code == 302


def test_a_session_kept_after_signing_out(ada: User) -> None:
    """A copy of the cookie is then useless: the session is deleted from the database."""
    victim, thief = Client(), Client()
    victim.post(LOGIN, credentials("ada", RIGHT))
    thief.cookies["sessionid"] = victim.cookies["sessionid"].value
    assert thief.get("/account/").status_code == 200
    victim.post("/accounts/logout/")
    assert thief.get("/account/").status_code == 302


def test_a_session_kept_after_a_new_password(ada: User) -> None:
    victim, thief = Client(), Client()
    for client in (victim, thief):
        client.post(LOGIN, credentials("ada", RIGHT))
    ada.refresh_from_db()
    ada.set_password("another horse 9")
    ada.save()
    assert thief.get("/account/").status_code == 302


def test_the_key_of_a_session_is_not_stored_where_members_read(ada: User) -> None:
    client = Client()
    client.post(LOGIN, credentials("ada", RIGHT))
    key = client.cookies["sessionid"].value
    assert key not in client.get("/account/").content.decode()


def test_keys_in_addresses_are_not_sent_to_other_sites(
    keys: dict[str, Callable[[str], str]],
) -> None:
    """In the Referer header of a link on the page they open."""
    for right in keys:
        assert Client().get(right)["Referrer-Policy"] in ("no-referrer", "same-origin")
