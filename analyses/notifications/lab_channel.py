"""The lab's channel: messages as Slack, Mattermost and Teams take them at an incoming webhook.

Slack's text is mrkdwn, in which ``&``, ``<`` and ``>`` are escaped and a link is ``<URL|text>``
(docs.slack.dev); Mattermost's is Markdown (developers.mattermost.com); a workflow of Teams takes
Adaptive Cards only (learn.microsoft.com, *When a Teams webhook request is received*).
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from analyses.lab import settings as lab
from analyses.models import ChannelFormat, LabSettings
from analyses.notifications import webhook
from analyses.notifications.message import Message
from analyses.notifications.webhook import NotDelivered
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

NOT_SET_UP = "the lab has no channel. An admin can set one on the Lab page"
_OPEN = "Open in MemoryMark"
_NO_BREAK = "\N{ZERO WIDTH SPACE}"


def body_for(kind: str, text: str, url: str) -> bytes:
    """The JSON of a message in one of the formats.

    Args:
        kind: A value of :class:`ChannelFormat`.
        text: Plain text; nothing in it is markup.
        url: The link of the message.
    """
    match ChannelFormat(kind):
        case ChannelFormat.SLACK:
            content: dict[str, Any] = {"text": f"{_slack(text)}\n<{_slack(url)}|{_OPEN}>"}
        case ChannelFormat.MATTERMOST:
            content = {"text": f"{_markdown(text)}\n[{_OPEN}]({url})"}
        case ChannelFormat.TEAMS:
            content = _teams(text, url)
    return json.dumps(content, ensure_ascii=False).encode()


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown(text: str) -> str:
    """The text without markup and without mentions of all members, such as ``@channel``."""
    escaped = "".join(f"\\{sign}" if sign in r"\`*_{}[]<>#|~" else sign for sign in text)
    return escaped.replace("@", f"@{_NO_BREAK}")


def _teams(text: str, url: str) -> dict[str, Any]:
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": _markdown(text), "wrap": True}],
        "actions": [{"type": "Action.OpenUrl", "title": _OPEN, "url": url}],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    attachment = {"contentType": kind, "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def post(message: Message, to: str = "") -> str:
    """Post a message to the lab's channel; returns the receiver's reply, for people to read.

    Args:
        message: The message.
        to: The member it is for; empty for a test.

    Raises:
        NotDelivered: With the reason.
    """
    stored = lab.lab_settings()
    if not stored.channel_url:
        raise NotDelivered(NOT_SET_UP)
    text, url = str(message.payload["text"]), str(message.payload["url"])
    body = body_for(stored.channel_format, f"{to}: {text}" if to else text, url)
    return f"HTTP {webhook.post(stored.channel_url, body, settings.WEBHOOK_HOSTS)}"


def save(member: User, kind: str, url: str) -> None:
    """Store the lab's channel; the caller has checked the admin and the URL. Empty for none."""
    stored = lab.lab_settings()
    before = _words(stored)
    stored.channel_format, stored.channel_url, stored.changed_by = kind, url, member
    with transaction.atomic():
        stored.save()
        if before != _words(stored):
            audit.note(
                member, Action.LAB_CHANGED, "lab channel", before=before, after=_words(stored)
            )


def _words(stored: LabSettings) -> str:
    """The channel without its path: who knows that can post there."""
    if not stored.channel_url:
        return "none"
    return f"{stored.get_channel_format_display()} at {urlsplit(stored.channel_url).hostname}"
