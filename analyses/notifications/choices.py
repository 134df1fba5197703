"""What a member has chosen: how to be told of analyses that have ended."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.models import User

from analyses.models import Channel, NotificationChoices
from analyses.notifications.webhook import new_secret


def choices_of(member: User) -> NotificationChoices:
    """The member's choices; an unsaved row, with everything off, where nothing was chosen yet."""
    chosen = NotificationChoices.objects.filter(member=member).first()
    return chosen or NotificationChoices(member=member)


def channels_of(choices: NotificationChoices) -> list[Channel]:
    """The ways by which the member is told."""
    ways = {Channel.EMAIL: choices.by_email, Channel.WEBHOOK: choices.by_webhook}
    return [channel for channel, chosen in ways.items() if chosen]


def save(member: User, chosen: Mapping[str, object]) -> None:
    """Store a member's choices, with a secret to sign with the first time."""
    NotificationChoices.objects.update_or_create(
        member=member,
        defaults=chosen,
        create_defaults={**chosen, "webhook_secret": new_secret()},
    )


def renew_secret(member: User) -> bool:
    """Give the member another secret; whether there was one to replace."""
    mine = NotificationChoices.objects.filter(member=member)
    return bool(mine.update(webhook_secret=new_secret()))
