"""An account's e-mail address: confirmed by a link, announced to the old one, and unique."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from smtplib import SMTPException
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from pytest_django import Settings

from analyses.tests.factories import make_user
from memorymark_site.accounts.mail import ADDRESS_LINK_SECONDS, NO_BACKEND
from memorymark_site.accounts.models import AuditEntry

ADDRESS = "/account/address/"
PASSWORD = "correct horse battery"  # noqa: S105  # of make_user


@pytest.fixture(autouse=True)
def site(settings: Settings) -> None:
    settings.PUBLIC_URL = "https://lab.example"


@pytest.fixture
def ada(db: None) -> User:
    user = make_user("ada")
    User.objects.filter(pk=user.pk).update(email="ada@old.example")
    return User.objects.get(pk=user.pk)


@pytest.fixture
def browser(ada: User) -> Client:
    return _browser("ada")


def _browser(name: str) -> Client:
    client = Client()
    client.post("/accounts/login/", {"login": name, "password": PASSWORD})
    return client


def _ask(client: Client, address: str) -> str:
    """Enter an address; returns the path of the link sent to it."""
    client.post(ADDRESS, {"email": address})
    assert mail.outbox, "nothing was sent"
    found = re.search(r"https://lab\.example(/account/address/\S+/)", str(mail.outbox[-1].body))
    assert found, mail.outbox[-1].body
    return found[1]


def _address() -> str:
    return User.objects.get(username="ada").email


def test_a_new_address_takes_effect_when_its_link_is_opened(browser: Client) -> None:
    link = _ask(browser, "ada@new.example")
    assert mail.outbox[-1].to == ["ada@new.example"]
    shown = browser.get(link).content.decode()
    assert "ada@new.example" in shown
    assert _address() == "ada@old.example"

    done = browser.post(link, follow=True).content.decode()

    assert "Your e-mail address is now ada@new.example." in done
    assert _address() == "ada@new.example"
    entry = AuditEntry.objects.get(action="address_changed")
    assert (entry.before, entry.after) == ("ada@old.example", "ada@new.example")


def test_the_old_address_is_notified(browser: Client) -> None:
    browser.post(_ask(browser, "ada@new.example"))

    assert mail.outbox[-1].to == ["ada@old.example"]
    assert "ada@new.example" in mail.outbox[-1].body


def test_a_link_works_once(browser: Client) -> None:
    link = _ask(browser, "ada@new.example")
    browser.post(link)
    browser.post(ADDRESS, {"email": ""})

    assert browser.post(link).status_code == 404
    assert _address() == ""


def test_a_link_works_for_a_day(browser: Client) -> None:
    link = _ask(browser, "ada@new.example")

    with patch(
        "django.core.signing.time.time", return_value=time.time() + ADDRESS_LINK_SECONDS + 1
    ):
        ended = browser.get(link)

    assert ended.status_code == 404
    assert "expired" in ended.content.decode()


def test_a_link_only_works_for_its_account(browser: Client) -> None:
    make_user("eve")
    link = _ask(browser, "ada@new.example")

    assert _browser("eve").post(link).status_code == 404
    assert "/accounts/login/" in Client().get(link)["Location"]
    assert not User.objects.filter(email="ada@new.example").exists()


def test_another_accounts_address_is_refused(browser: Client) -> None:
    eve = make_user("eve")
    link = _ask(browser, "eve@lab.example")
    User.objects.filter(pk=eve.pk).update(email="Eve@lab.example")

    assert browser.post(link).status_code == 404
    refused = browser.post(ADDRESS, {"email": "eve@lab.example"})
    assert "Another account uses this address." in refused.content.decode()
    assert len(mail.outbox) == 1


def test_an_address_can_be_removed(browser: Client) -> None:
    browser.post(ADDRESS, {"email": ""})

    assert _address() == ""
    assert mail.outbox[-1].to == ["ada@old.example"]


def test_an_open_browser_is_not_enough(browser: Client) -> None:
    with patch("memorymark_site.accounts.adapters.time.time", return_value=time.time() + 601):
        sent_on = browser.post(ADDRESS, {"email": "eve@lab.example"})

    assert sent_on["Location"].startswith("/account/confirm/")
    assert mail.outbox == []


def test_the_number_of_links_is_limited(browser: Client) -> None:
    for number in range(5):
        _ask(browser, f"somebody{number}@else.example")

    assert browser.post(ADDRESS, {"email": "one@more.example"}).status_code == 429
    assert len(mail.outbox) == 5


def test_a_site_without_email_says_so(browser: Client, settings: Settings) -> None:
    settings.EMAIL_BACKEND = NO_BACKEND

    page = browser.post(ADDRESS, {"email": "ada@new.example"}).content.decode()

    assert "set EMAIL_URL for the site" in page
    assert _address() == "ada@old.example"


@pytest.fixture
def dead_server() -> Iterator[None]:
    broken = SMTPException("no route to the mail server")
    with patch("memorymark_site.accounts.mail.send_mail", side_effect=broken):
        yield


@pytest.mark.usefixtures("dead_server")
def test_a_failed_message_is_reported(browser: Client) -> None:
    page = browser.post(ADDRESS, {"email": "ada@new.example"}).content.decode()

    assert "no route to the mail server" in page
    assert "Nothing has changed" in page


def test_a_change_takes_effect_even_if_the_old_address_cannot_be_notified(
    browser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    link = _ask(browser, "ada@new.example")

    with patch("memorymark_site.accounts.mail.send_mail", side_effect=OSError("refused")):
        browser.post(link)

    assert _address() == "ada@new.example"
    assert "could not be notified of the change: refused" in caplog.text
