"""Warns members that someone guesses at their password: by e-mail and at their next sign-in."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from memorymark_site.accounts import audit, mail
from memorymark_site.accounts.models import Action, AuditEntry

TOLD_EVERY = timedelta(days=1)
"""Someone who keeps guessing does not fill a mailbox, or the audit log."""

_MAX_NAME_LENGTH = 150

AT_SIGN_IN = (
    "Someone entered too many wrong passwords for your account since you last signed in. If it "
    "wasn't you, choose a new password or add a second factor."
)


def tell(name: str) -> None:
    """Note too many wrong passwords for an account, and warn its member, once a day at most.

    It does not wait for the mail server: the time would reveal whether there is such an account.
    """
    typed = name.replace("\0", "").strip()[:_MAX_NAME_LENGTH]  # PostgreSQL takes no NUL
    user = User.objects.filter(username__iexact=typed, is_active=True).first()
    if user is None or was_guessed_at(user, timezone.now() - TOLD_EVERY):
        return
    with transaction.atomic():
        audit.note(None, Action.PASSWORDS_GUESSED, user.username)
    if user.email and mail.sends_email():
        address = settings.PUBLIC_URL + reverse("accounts:account")
        text = render_to_string("accounts/guessed.txt", {"user": user, "address": address})
        mail.send_later("Wrong passwords for your MemoryMark account", text, user.email)


def was_guessed_at(user: User, since: datetime | None) -> bool:
    """Whether that was noted since a time; not before the first sign-in."""
    if since is None:
        return False
    noted = AuditEntry.objects.filter(action=Action.PASSWORDS_GUESSED, what=user.username)
    return noted.filter(at__gt=since).exists()
