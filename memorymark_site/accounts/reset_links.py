"""Links for a new password: sent to who has forgotten theirs, or made by an admin.

They are signed over the password and the last sign-in, so that they work once, and nothing of them
is stored. One that an admin has made is signed for that admin as well, and ends with their being
one: it opens an account, and they have read it.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator, default_token_generator
from django.db import transaction
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from memorymark_site.accounts import audit
from memorymark_site.accounts.members import Inactive
from memorymark_site.accounts.models import Action


class _MadeBy(PasswordResetTokenGenerator):
    """Tokens of one admin."""

    key_salt = "memorymark.reset_links"

    def __init__(self, admin: User) -> None:
        super().__init__()
        self._admin = admin.pk

    def _make_hash_value(self, user: User, timestamp: int) -> str:
        return f"{self._admin}:{super()._make_hash_value(user, timestamp)}"


class Tokens(PasswordResetTokenGenerator):
    """What holds in such a link: Django's own token, or one of an admin of today."""

    def check_token(self, user: User | None, token: str | None) -> bool:
        """Whether a new password may be set by it."""
        if user is None or not user.is_active:
            return False
        if default_token_generator.check_token(user, token):
            return True
        admins = User.objects.filter(is_staff=True, is_active=True)
        return any(_MadeBy(admin).check_token(user, token) for admin in admins)


def make(admin: User, user: User) -> str:
    """The path of a link with which somebody sets a new password, once.

    It ends after ``PASSWORD_RESET_TIMEOUT``, and with the next sign-in or new password.

    Raises:
        Inactive: The account is deactivated.
    """
    if not user.is_active:
        raise Inactive
    with transaction.atomic():
        audit.note(admin, Action.RESET_LINK_MADE, user.username)
    number = urlsafe_base64_encode(force_bytes(user.pk))
    return reverse("accounts:reset", args=[number, _MadeBy(admin).make_token(user)])
