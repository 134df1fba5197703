"""E-mail of accounts, and the address it goes to.

A new address takes effect when its owner opens the link sent to it, signed in as the account that
requested it. So nobody can take someone else's address, which single sign-on may know them by, or
lose their own to a typo.
"""

from __future__ import annotations

import logging
from threading import Thread

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.core.mail import send_mail
from django.db import transaction

from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

logger = logging.getLogger(__name__)

MAILING = "mailing"
"""Name of the threads that send e-mail which no response waits for."""

NO_BACKEND = "django.core.mail.backends.dummy.EmailBackend"


class NotSent(Exception):
    """The mail server refused it; the message says why."""


def sends_email() -> bool:
    """Whether e-mail is set up on this machine."""
    return bool(settings.EMAIL_BACKEND != NO_BACKEND)


def send(subject: str, text: str, address: str) -> None:
    """Send an e-mail.

    Raises:
        NotSent: With the reason.
    """
    try:
        send_mail(subject, text, None, [address])
    except (OSError, ValueError) as error:  # SMTP's are OSErrors; a wrong address is a ValueError
        raise NotSent(str(error) or type(error).__name__) from error


def send_later(subject: str, text: str, address: str) -> None:
    """Send an e-mail in another thread; a failure is logged."""
    Thread(target=_send_or_log, args=(subject, text, address), name=MAILING).start()


def _send_or_log(subject: str, text: str, address: str) -> None:
    try:
        send(subject, text, address)
    except NotSent as why:
        logger.warning("an e-mail could not be sent (%s): %s", subject, why)


ADDRESS_LINK_SECONDS = 24 * 3600
_ADDRESS_SALT = "memorymark.address"


class LinkEnded(Exception):
    """The link belongs to another account, was used, or has expired."""


def address_is_taken(address: str, user: User) -> bool:
    return User.objects.filter(email__iexact=address).exclude(pk=user.pk).exists()


def address_token(user: User, address: str) -> str:
    """The token of a confirmation link; valid until the account's address changes."""
    return signing.dumps([user.pk, user.email, address], salt=_ADDRESS_SALT)


def read_address_token(token: str, user: User) -> str:
    """The address that a token confirms.

    Raises:
        LinkEnded: It is not, or no longer, valid for this account.
    """
    try:
        pk, before, address = signing.loads(token, salt=_ADDRESS_SALT, max_age=ADDRESS_LINK_SECONDS)
    except signing.BadSignature as error:
        raise LinkEnded from error
    if (pk, before) != (user.pk, user.email) or address_is_taken(address, user):
        raise LinkEnded
    return str(address)


def change_address(token: str, user: User) -> str:
    """Set the address that a token confirms; returns the previous one.

    Raises:
        LinkEnded: As :func:`read_address_token`.
    """
    with transaction.atomic():
        now = User.objects.select_for_update().get(pk=user.pk)
        return _set_address(now, read_address_token(token, now))


def remove_address(user: User) -> None:
    with transaction.atomic():
        _set_address(User.objects.select_for_update().get(pk=user.pk), "")


def _set_address(user: User, address: str) -> str:
    before, user.email = user.email, address
    user.save(update_fields=["email"])
    audit.note(user, Action.ADDRESS_CHANGED, user.username, before=before, after=address)
    return before
