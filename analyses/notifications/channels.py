"""The channels by which members choose to be notified: e-mail, webhook and the lab's."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parseaddr

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage

from analyses.models import Channel, Event, NotificationChoices
from analyses.notifications import lab_channel, webhook
from analyses.notifications.message import Message
from analyses.notifications.webhook import NotDelivered, new_secret
from memorymark_site.accounts.mail import sends_email

HOW_TO_SEND_EMAIL = (
    "this site sends no e-mail yet. An admin can set EMAIL_URL for the site and each worker"
)
NO_ADDRESS = "your account has no e-mail address. Add one on the Account page"
LOCKED_OUT = "the account is deactivated"
TURNED_OFF = "you have turned this off in the meantime"


def send(message: Message, channel: str, choices: NotificationChoices) -> str:
    """Send a message to a member; returns the receiver's reply, for the member to read.

    Raises:
        NotDelivered: With the reason.
    """
    if not choices.member.is_active:
        raise NotDelivered(LOCKED_OUT)
    if channel == Channel.EMAIL:
        return _send_email(message, choices)
    if channel == Channel.LAB:
        if not choices.by_lab_channel:
            raise NotDelivered(TURNED_OFF)
        return lab_channel.post(message, to=choices.member.get_username())
    return _call_webhook(message, choices)


def _send_email(message: Message, choices: NotificationChoices) -> str:
    address = choices.member.email
    if not choices.by_email:
        raise NotDelivered(TURNED_OFF)
    if not sends_email():
        raise NotDelivered(HOW_TO_SEND_EMAIL)
    if not address:
        raise NotDelivered(NO_ADDRESS)
    sender = settings.DEFAULT_FROM_EMAIL
    number = f"<{message.number}@{parseaddr(sender)[1].rpartition('@')[2]}>"
    mail = EmailMessage(
        message.subject, message.text, sender, [address], headers={"Message-ID": number}
    )
    try:
        mail.send()
    except (OSError, ValueError) as error:  # SMTP's are OSErrors; a wrong address is a ValueError
        raise NotDelivered(f"the mail server did not accept it: {error or type(error)}") from error
    return f"handed to the mail server for {address}"


def _call_webhook(message: Message, choices: NotificationChoices) -> str:
    if not choices.by_webhook:
        raise NotDelivered(TURNED_OFF)
    status = webhook.call(
        choices.webhook_url,
        choices.webhook_secret,
        message.number,
        message.body,
        settings.WEBHOOK_HOSTS,
    )
    return f"HTTP {status}"


def choices_of(member: User) -> NotificationChoices:
    """The member's choices; an unsaved row, with everything off, if there are none yet."""
    chosen = NotificationChoices.objects.filter(member=member).first()
    return chosen or NotificationChoices(member=member)


def channels_of(choices: NotificationChoices, event: Event | None = None) -> list[Channel]:
    """The channels that are on; of an event, those chosen for it."""
    ways = {
        Channel.EMAIL: (choices.by_email, choices.email_events),
        Channel.WEBHOOK: (choices.by_webhook, choices.webhook_events),
        Channel.LAB: (choices.by_lab_channel, choices.lab_channel_events),
    }
    return [
        channel
        for channel, (is_on, events) in ways.items()
        if is_on and (event is None or event in events)
    ]


def save_choices(member: User, chosen: Mapping[str, object]) -> None:
    """Store a member's choices, with a new secret if they are the first."""
    NotificationChoices.objects.update_or_create(
        member=member,
        defaults=chosen,
        create_defaults={**chosen, "webhook_secret": new_secret()},
    )


def renew_secret(member: User) -> bool:
    """Replace the member's secret; returns whether there was one."""
    mine = NotificationChoices.objects.filter(member=member)
    return bool(mine.update(webhook_secret=new_secret()))
