"""The lab's channel, and members' choices of what comes by which way."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses.jobs import notifications
from analyses.lab import settings as lab
from analyses.models import (
    Analysis,
    Channel,
    ChannelFormat,
    Event,
    LabSettings,
    Notification,
    NotificationChoices,
    Status,
)
from analyses.notifications import lab_channel, message, webhook
from analyses.notifications.webhook import NotDelivered
from analyses.overview.changes import mention
from analyses.tests.factories import make_analysis, make_user
from memorymark_site.accounts.models import Action, AuditEntry

pytestmark = pytest.mark.database

URL = "https://8.8.8.8/services/T0/B0/secret"
LINK = "https://lab.example/1/"


@pytest.fixture
def admin(client: Client, db: None) -> User:
    found = make_user("root", is_staff=True, is_superuser=True)
    client.force_login(found)
    return found


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Records what would be posted."""
    made: list[tuple[str, Any]] = []

    def post(url: str, body: bytes, _allowed: object) -> int:
        made.append((url, json.loads(body)))
        return 200

    monkeypatch.setattr(webhook, "post", post)
    return made


def _save(client: Client, **fields: str) -> str:
    given = {"format": "slack", "url": URL} | fields
    return unescape(client.post("/lab/channel/", given, follow=True).content.decode())


def _theirs() -> Analysis:
    return make_analysis(make_user("alan"), Status.SUCCEEDED, usd_per_year=100.0)


# The formats


def test_slack_gets_escaped_text_and_a_link() -> None:
    body = json.loads(lab_channel.body_for(ChannelFormat.SLACK, "a < b & <!channel>", LINK))
    assert body == {
        "text": f"a &lt; b &amp; &lt;!channel&gt;\n<{LINK}|Open in MemoryMark>",
    }


def test_mattermost_gets_markdown_that_mentions_nobody() -> None:
    body = json.loads(lab_channel.body_for(ChannelFormat.MATTERMOST, "@all *a* [b](c)", LINK))
    assert list(body) == ["text"]
    text, link = body["text"].split("\n")
    assert "@all" not in text
    assert r"\*a\* \[b\](c)" in text
    assert link == f"[Open in MemoryMark]({LINK})"


def test_teams_gets_an_adaptive_card() -> None:
    body = json.loads(lab_channel.body_for(ChannelFormat.TEAMS, "batch 16 to 128", LINK))
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["body"][0]["text"]) == ("AdaptiveCard", "batch 16 to 128")
    assert card["actions"] == [
        {"type": "Action.OpenUrl", "title": "Open in MemoryMark", "url": LINK}
    ]


# The admin's page


@pytest.mark.parametrize("kind", ChannelFormat.values)
def test_an_admin_sets_the_channel_and_sends_a_test(
    client: Client, admin: User, posted: list[tuple[str, Any]], kind: str
) -> None:
    assert "Send a test message" not in client.get("/lab/").content.decode()
    html = _save(client, format=kind)
    assert "Saved the lab's channel." in html
    assert "Send a test message" in html
    assert "no-store" in client.get("/lab/")["Cache-Control"]
    said = unescape(client.post("/lab/channel/test/", follow=True).content.decode())
    assert "Lab channel: HTTP 200." in said
    assert posted[0][0] == URL
    noted = AuditEntry.objects.get(action=Action.LAB_CHANGED)
    assert "at 8.8.8.8" in noted.after
    assert "secret" not in noted.after


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"url": "http://169.254.169.254/latest"}, "public internet"),
        ({"url": "http://127.0.0.1/"}, "MEMORYMARK_WEBHOOK_HOSTS"),
        ({"url": "ftp://chat.example/"}, "full URL"),
        ({"format": "irc"}, "irc is not one of the available choices"),
    ],
)
def test_an_unusable_channel_is_not_saved(
    client: Client, admin: User, fields: dict[str, str], why: str
) -> None:
    assert why in _save(client, **fields)
    assert not LabSettings.objects.exclude(channel_url="").exists()


def test_the_channel_is_checked_before_each_message_too(admin: User) -> None:
    lab_channel.save(admin, ChannelFormat.SLACK, "http://127.0.0.1:1/")
    made = message.of_test()
    with pytest.raises(NotDelivered, match="public internet"):
        lab_channel.post(made)


def test_the_other_settings_leave_the_channel_alone(client: Client, admin: User) -> None:
    lab_channel.save(admin, ChannelFormat.TEAMS, URL)
    client.post("/lab/", {"hours_per_run": "3", "sharing_allowed": "on"})
    stored = lab.lab_settings()
    assert (stored.hours_per_run, stored.channel_url) == (3, URL)
    api = client.get("/api/v1/lab/").json()
    assert URL not in json.dumps(api)


def test_without_a_url_there_is_no_channel(client: Client, admin: User) -> None:
    _save(client)
    _save(client, url="")
    said = unescape(client.post("/lab/channel/test/", follow=True).content.decode())
    assert "the lab has no channel" in said


# Members' choices


@pytest.mark.parametrize("wanted", [[Event.MENTION], [Event.ENDED, Event.ADVICE]])
def test_an_event_comes_by_the_channels_chosen_for_it(member: User, wanted: list[str]) -> None:
    theirs = _theirs()
    NotificationChoices.objects.create(
        member=theirs.owner,
        by_email=True,
        email_events=[],
        by_webhook=True,
        webhook_events=wanted,
        lab_channel_events=wanted,
    )
    mention(theirs, member)
    found = list(Notification.objects.values_list("channel", flat=True))
    assert found == ([Channel.WEBHOOK] if Event.MENTION in wanted else [])


def test_a_mention_is_posted_with_the_name_of_whom_it_is_for(
    member: User, admin: User, posted: list[tuple[str, Any]]
) -> None:
    lab_channel.save(admin, ChannelFormat.SLACK, URL)
    theirs = _theirs()
    NotificationChoices.objects.create(member=theirs.owner, by_lab_channel=True)
    mention(theirs, member)
    assert notifications.deliver(Notification.objects.get(channel=Channel.LAB).pk) is None
    ((_, body),) = posted
    assert body["text"].startswith("alan: Mentioned: BERT base")
    assert f"/{theirs.pk}/|Open in MemoryMark>" in body["text"]


def test_members_choose_on_their_page(client: Client, admin: User) -> None:
    form = {"by_lab_channel": "on", "lab_channel_events": ["mention"], "only_after_seconds": "60"}
    refused = unescape(client.post("/notifications/", form).content.decode())
    assert "Not possible: the lab has no channel" in refused
    lab_channel.save(admin, ChannelFormat.SLACK, URL)
    assert client.post("/notifications/", form).status_code == 302
    chosen = NotificationChoices.objects.get(member=admin)
    assert (chosen.by_lab_channel, chosen.lab_channel_events) == (True, ["mention"])
    assert chosen.email_events == []
