"""The ways out: a message goes to a member by e-mail or to the member's webhook."""

from __future__ import annotations

from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMessage

from analyses.models import Channel, NotificationChoices
from analyses.notifications import webhook
from analyses.notifications.message import Message
from analyses.notifications.webhook import NotDelivered

NO_EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"

HOW_TO_SEND_EMAIL = (
    "this site sends no e-mail; an admin sets EMAIL_URL, such as "
    "smtp+tls://user:password@mail.example:587, for the site and for each worker"
)
NO_ADDRESS = "your account has no e-mail address; give it one on the page Account"
LOCKED_OUT = "the account is deactivated"
TURNED_OFF = "you have turned this off meanwhile"


def sends_email() -> bool:
    """Whether e-mail is set up on this machine."""
    return bool(settings.EMAIL_BACKEND != NO_EMAIL_BACKEND)


def send(message: Message, channel: str, choices: NotificationChoices) -> str:
    """Send a message to a member by one channel.

    Returns:
        What the other side has said, in words.

    Raises:
        NotDelivered: With the reason in words.
    """
    if not choices.member.is_active:
        raise NotDelivered(LOCKED_OUT)
    if channel == Channel.EMAIL:
        return _send_email(message, choices)
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
        raise NotDelivered(f"the mail server did not take it: {error or type(error)}") from error
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
