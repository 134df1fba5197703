"""The one-time set-up link: how the first admin of a new lab gets in.

Whoever can read the terminal of the first start owns the machine, so the link printed there is
proof enough. Only a digest is stored, and only while there is no member.
"""

import hashlib
import secrets

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.crypto import constant_time_compare

from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action, SetupLink


class SetupClosed(Exception):
    """There is an admin already, or somebody else was faster."""


def renew() -> str | None:
    """Make a new link, which replaces the old one.

    Returns:
        Its token; ``None`` where the lab has a member already.
    """
    with transaction.atomic():
        SetupLink.objects.all().delete()
        if User.objects.exists():
            return None
        token = secrets.token_urlsafe(24)
        SetupLink.objects.create(digest=_digest(token))
    return token


def is_open() -> bool:
    """Whether the lab still waits for its first member."""
    return not User.objects.exists()


def find(token: str) -> SetupLink | None:
    """The link with this token, while it is good."""
    if not is_open():
        return None
    given = _digest(token)
    links = SetupLink.objects.all()
    return next((link for link in links if constant_time_compare(link.digest, given)), None)


def use(link: SetupLink, username: str, email: str, password: str) -> User:
    """Make the first admin; the link is used up in the same transaction.

    Raises:
        SetupClosed: If the link is gone: of two who submit at once, only one can delete it.
    """
    with transaction.atomic():
        deleted, _ = SetupLink.objects.filter(pk=link.pk).delete()
        if not deleted or not is_open():
            raise SetupClosed
        user = User.objects.create_superuser(username, email, password)
        audit.note(user, Action.MEMBER_JOINED, username, before="set-up link", after="admin")
        return user


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
