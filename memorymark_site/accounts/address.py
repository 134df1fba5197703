"""The e-mail address of an account, which is changed by who can read what is sent to it.

A link goes to the new address, and works for the account that has asked for it alone. So nobody
takes the address of somebody else, which single sign-on may know them by, or loses their own by a
slip of the finger.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction

from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

WORKS_SECONDS = 24 * 3600
_SALT = "memorymark.address"


class LinkEnded(Exception):
    """The link is of another account, has been used, or its time is over."""


def is_taken(address: str, user: User) -> bool:
    """Whether another account has it."""
    return User.objects.filter(email__iexact=address).exclude(pk=user.pk).exists()


def token_for(user: User, address: str) -> str:
    """What the link ends with; it holds until the address of the account is another one."""
    return signing.dumps([user.pk, user.email, address], salt=_SALT)


def read(token: str, user: User) -> str:
    """The address that a token is for.

    Raises:
        LinkEnded: It is not for this account, or not any more.
    """
    try:
        pk, before, address = signing.loads(token, salt=_SALT, max_age=WORKS_SECONDS)
    except signing.BadSignature as error:
        raise LinkEnded from error
    if (pk, before) != (user.pk, user.email) or is_taken(address, user):
        raise LinkEnded
    return str(address)


def change(token: str, user: User) -> str:
    """Give the account the address that a token is for; returns the one it had.

    Raises:
        LinkEnded: As :func:`read`.
    """
    with transaction.atomic():
        now = User.objects.select_for_update().get(pk=user.pk)
        return _set(now, read(token, now))


def remove(user: User) -> None:
    """Take the account's address away."""
    with transaction.atomic():
        _set(User.objects.select_for_update().get(pk=user.pk), "")


def _set(user: User, address: str) -> str:
    before, user.email = user.email, address
    user.save(update_fields=["email"])
    audit.note(user, Action.ADDRESS_CHANGED, user.username, before=before, after=address)
    return before
