"""Links that are secrets: random keys stored as digests, and password reset links.

A reset link is signed over the password and the last sign-in, so it works once and nothing has to
be stored. One created by an admin is also signed for that admin and ends when they stop being one,
because they have seen it.
"""

from __future__ import annotations

import hashlib
import secrets

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator, default_token_generator
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from memorymark_site.accounts import audit
from memorymark_site.accounts.members import Inactive
from memorymark_site.accounts.models import Action

_BYTES = 32


def new_key() -> tuple[str, str]:
    """A new key, and the digest to store."""
    key = secrets.token_urlsafe(_BYTES)
    return key, digest_of(key)


def digest_of(key: str) -> str:
    """The digest of a key; any text is accepted, since anyone can type one."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def passed_on(request: HttpRequest, path: str) -> str:
    """The address of a page to send to others: ``MEMORYMARK_URL``, or where the site was opened.

    The latter may work for the sender alone, such as ``localhost`` through a tunnel.
    """
    return f"{settings.GIVEN_URL}{path}" if settings.GIVEN_URL else request.build_absolute_uri(path)


class _MadeBy(PasswordResetTokenGenerator):
    """Reset tokens created by one admin."""

    key_salt = "memorymark.reset_links"

    def __init__(self, admin: User) -> None:
        super().__init__()
        self._admin = admin.pk

    def _make_hash_value(self, user: User, timestamp: int) -> str:
        return f"{self._admin}:{super()._make_hash_value(user, timestamp)}"


class ResetTokens(PasswordResetTokenGenerator):
    """Accepts Django's own tokens, and those of people who are admins now."""

    def check_token(self, user: User | None, token: str | None) -> bool:
        if user is None or not user.is_active:
            return False
        if default_token_generator.check_token(user, token):
            return True
        admins = User.objects.filter(is_staff=True, is_active=True)
        return any(_MadeBy(admin).check_token(user, token) for admin in admins)


def reset_path(admin: User, user: User) -> str:
    """The path of a link that lets a member set a new password once.

    It expires after ``PASSWORD_RESET_TIMEOUT``, or at the next sign-in or password change.

    Raises:
        Inactive: The account is deactivated.
    """
    if not user.is_active:
        raise Inactive
    with transaction.atomic():
        audit.note(admin, Action.RESET_LINK_MADE, user.username)
    number = urlsafe_base64_encode(force_bytes(user.pk))
    return reverse("accounts:reset", args=[number, _MadeBy(admin).make_token(user)])
