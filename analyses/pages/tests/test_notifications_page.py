"""The page on which a member chooses notifications."""

from __future__ import annotations

import json
import re
import socket
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as site
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from analyses.models import Channel, Delivery, Notification, NotificationChoices, Status
from analyses.notifications import channels, message, webhook
from analyses.notifications.webhook import NotDelivered
from analyses.tests.factories import make_analysis, make_notification, make_user
from memorymark_site.accounts.mail import NO_BACKEND

ADDRESS = "/notifications/"
SIX, TWO = {"attempts": 6}, {"attempts": 2}
HOOK = "http://8.8.8.8/hook"


@pytest.fixture
def page(client: Client, member: User) -> Client:
    User.objects.filter(pk=member.pk).update(email="grace@lab.example")
    client.force_login(member)
    return client


def _html(page: Client) -> str:
    return unescape(page.get(ADDRESS).content.decode())


def _save(page: Client, **fields: object) -> str:
    given = {"webhook_url": "", "only_after_seconds": 60} | fields
    return unescape(page.post(ADDRESS, given, follow=True).content.decode())


def _test(page: Client) -> str:
    response = page.post(reverse("analyses:notifications-test"), follow=True)
    return unescape(response.content.decode())


def test_both_are_off_until_chosen(page: Client) -> None:
    html = _html(page)
    assert re.search(r'name="by_\w+"[^>]*checked', html) is None
    assert 'value="60"' in html
    assert "To grace@lab.example, the address in your account." in html
    assert not NotificationChoices.objects.exists()  # viewing the page writes nothing


def test_the_account_page_links_to_notifications(page: Client) -> None:
    assert 'href="/account/"' in page.get("/").content.decode()
    assert f'href="{ADDRESS}"' in page.get("/account/").content.decode()


def test_saved_settings_are_shown_with_the_secret(page: Client) -> None:
    html = _save(page, by_email="on", by_webhook="on", webhook_url=HOOK, only_after_seconds=5)
    chosen = NotificationChoices.objects.get()
    assert (chosen.by_email, chosen.by_webhook, chosen.only_after_seconds) == (True, True, 5)
    assert "Saved." in html
    assert HOOK in html
    assert chosen.webhook_secret in html
    assert "no-store" in page.get(ADDRESS)["Cache-Control"]


def test_the_secret_stays_until_renewed(page: Client) -> None:
    _save(page)
    first = NotificationChoices.objects.get().webhook_secret
    _save(page, only_after_seconds=0)
    assert NotificationChoices.objects.get().webhook_secret == first
    page.post(reverse("analyses:notifications-secret"))
    second = NotificationChoices.objects.get().webhook_secret
    assert first != second
    assert second in _html(page)


def test_the_settings_belong_to_one_member(page: Client) -> None:
    other = make_user("lin")
    channels.save_choices(other, {"webhook_url": "https://lin.example/"})
    _notification(other)
    html = _html(page)
    assert "lin.example" not in html
    assert "refused" not in html


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"by_webhook": "on"}, "Enter the URL to call."),
        ({"webhook_url": "http://127.0.0.1:8000/"}, "addresses of the public internet"),
        ({"webhook_url": "http://169.254.169.254/latest/meta-data"}, "public internet"),
        ({"webhook_url": "http://localhost/"}, "MEMORYMARK_WEBHOOK_HOSTS"),
        ({"webhook_url": "ftp://hook.example/"}, "full URL"),
        ({"only_after_seconds": -1}, "greater than or equal to 0"),
        ({"only_after_seconds": 604_801}, "less than or equal to 604800"),
    ],
)
def test_an_unusable_webhook_is_not_saved(
    page: Client, fields: dict[str, object], why: str
) -> None:
    assert why in _save(page, **fields)
    assert not NotificationChoices.objects.exists()


def test_a_host_that_does_not_resolve_is_not_saved(
    page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "cannot be resolved" in _save(page, webhook_url="https://hook.example/")


def test_an_admin_can_allow_a_host_in_the_lab(page: Client, settings: Settings) -> None:
    settings.WEBHOOK_HOSTS = frozenset({"127.0.0.1"})
    assert "Saved." in _save(page, by_webhook="on", webhook_url="http://127.0.0.1:1/")


def test_a_site_without_a_mail_server_says_so(page: Client, settings: Settings) -> None:
    settings.EMAIL_BACKEND = NO_BACKEND
    assert "This site sends no e-mail yet. An admin can set EMAIL_URL" in _html(page)
    assert "Not possible: this site sends no e-mail" in _save(page, by_email="on")
    assert "Saved." in _save(page)


def test_a_member_without_an_email_address_is_told_to_add_one(page: Client) -> None:
    User.objects.update(email="")
    assert "Your account has no e-mail address" in _html(page)
    assert "Not possible: your account has no" in _save(page, by_email="on")


def test_the_test_button_reports_what_happened(
    page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [204, NotDelivered("HTTP 404 Not Found")]

    def call(*_args: object) -> int:
        if isinstance(answer := answers.pop(0), NotDelivered):
            raise answer
        return int(answer)

    monkeypatch.setattr(webhook, "call", call)
    _save(page, by_email="on", by_webhook="on", webhook_url=HOOK)

    html = _test(page)
    assert "E-mail: handed to the mail server for grace@lab.example." in html
    assert "Webhook: HTTP 204." in html
    assert "Webhook: HTTP 404 Not Found." in _test(page)
    assert [sent.subject for sent in mail.outbox] == ["[MemoryMark] Test"] * 2


def test_without_a_channel_there_is_nothing_to_test(page: Client) -> None:
    assert "Turn on e-mail or the webhook first" in _test(page)


def _notification(owner: User, **fields: Any) -> Notification:
    given = {"channel": Channel.WEBHOOK, "last_error": "refused"}
    return make_notification(make_analysis(owner, Status.FAILED), **given | fields)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        (
            {"status": Delivery.GIVEN_UP, "job": {"attempts": 6}},
            ["Given up", "after 6 attempts", "refused"],
        ),
        (
            {"status": Delivery.WAITING, "job": {"attempts": 2}},
            ["Waiting", "attempt 2 of 6", "failed; next"],
        ),
        ({"status": Delivery.SENT, "sent_at": timezone.now(), "last_error": ""}, ["Sent", "UTC"]),
    ],
)
def test_the_latest_notifications_are_shown_with_their_errors(
    page: Client, member: User, fields: dict[str, Any], shown: list[str]
) -> None:
    _notification(member, **fields)
    html = _html(page)
    for words in shown:
        assert words in html


def test_a_hostile_response_stays_plain_text(page: Client, member: User) -> None:
    _notification(member, last_error="<script>alert(1)</script>")
    assert "<script>alert" not in page.get(ADDRESS).content.decode()


@pytest.mark.parametrize("name", ["notifications-test", "notifications-secret"])
def test_a_get_request_changes_nothing(page: Client, name: str) -> None:
    assert page.get(reverse(f"analyses:{name}")).status_code == 405


def test_the_docs_say_what_is_sent(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    docs = Path(site.BASE_DIR, "docs/pages.md").read_text().split("### Webhook format")[1]
    example, check = re.findall(r"```(?:json|python)\n(.*?)\n```", docs, re.DOTALL)
    assert list(json.loads(example)) == list(message.of_ended(analysis).payload)
    assert set(json.loads(example)) == set(message.of_test().payload)

    names: dict[str, Any] = {}
    exec(check, names)  # noqa: S102  # the lines that members are told to use
    secret = webhook.new_secret()
    headers = {
        "webhook-id": "analysis-1",
        "webhook-timestamp": "1",
        "webhook-signature": webhook.signature(secret, "analysis-1", 1, b"{}"),
    }
    assert names["is_genuine"](headers, b"{}", secret)
    assert not names["is_genuine"](headers, b"{ }", secret)
