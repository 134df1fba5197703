"""E-mails about accounts."""

from __future__ import annotations

from django.core.mail import send_mail


class NotSent(Exception):
    """The mail server did not take it; the message says why."""


def send(subject: str, text: str, address: str) -> None:
    """Send an e-mail.

    Raises:
        NotSent: With the reason in words.
    """
    try:
        send_mail(subject, text, None, [address])
    except (OSError, ValueError) as error:  # SMTP's are OSErrors; a wrong address is a ValueError
        raise NotSent(str(error) or type(error).__name__) from error
