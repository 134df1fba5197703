"""Every write to an account: roles, leaving and coming back, passwords. Each is noted."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Lower
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from memorymark_site.accounts import audit, sessions
from memorymark_site.accounts.models import Action, ApiToken, Viewer
from memorymark_site.accounts.roles import Role, role_of


class LastAdmin(Exception):
    """The lab would be left without an admin who can sign in."""


class Inactive(Exception):
    """The account is deactivated; it is reactivated first."""


def everybody() -> QuerySet[User]:
    """All accounts with their role at hand: the active ones first, A to Z."""
    accounts = User.objects.select_related("viewer")
    return accounts.order_by("-is_active", Lower("username"))


def give_role(user: User, role: Role) -> None:
    """Write down a role, in Django's flags and in ours; the caller notes why."""
    is_admin = role is Role.ADMIN
    User.objects.filter(pk=user.pk).update(is_staff=is_admin, is_superuser=is_admin)
    if role is Role.VIEWER:
        Viewer.objects.get_or_create(user=user)
    else:
        Viewer.objects.filter(user=user).delete()


def set_role(admin: User, user: User, role: Role) -> bool:
    """Let an active user be something else from the next request on.

    Returns:
        Whether that changed anything.

    Raises:
        LastAdmin: If nobody would be admin any more.
        Inactive: The account is deactivated.
    """
    with transaction.atomic():
        stored = _locked(user)
        before = role_of(stored)
        if before is None:
            raise Inactive
        if before is role:
            return False
        give_role(stored, role)
        _check_admin_left()
        audit.note(admin, Action.ROLE_CHANGED, stored.username, before=before, after=role)
    return True


def deactivate(admin: User, user: User) -> bool:
    """Lock somebody out, at once and everywhere; what the account has made stays.

    Its API tokens are deleted and its browsers signed out, so that coming back means signing in.

    Returns:
        Whether that changed anything.

    Raises:
        LastAdmin: If nobody would be admin any more.
    """
    with transaction.atomic():
        stored = _locked(user)
        before = role_of(stored)
        if before is None:
            return False
        User.objects.filter(pk=stored.pk).update(is_active=False)
        _check_admin_left()
        sessions.end_all(stored)
        tokens, _ = ApiToken.objects.filter(user=stored).delete()
        audit.note(
            admin, Action.MEMBER_DEACTIVATED, stored.username, before=before,
            after=f"{tokens} API tokens deleted" if tokens else "",
        )  # fmt: skip
    return True


def reactivate(admin: User, user: User) -> bool:
    """Let somebody in again, as what they were.

    Returns:
        Whether that changed anything.
    """
    with transaction.atomic():
        changed = User.objects.filter(pk=user.pk, is_active=False).update(is_active=True)
        if changed:
            stored = User.objects.get(pk=user.pk)
            audit.note(
                admin, Action.MEMBER_REACTIVATED, stored.username, after=role_of(stored) or ""
            )
    return bool(changed)


def reset_path(admin: User, user: User) -> str:
    """The path of a link with which somebody sets a new password, once.

    It ends after ``PASSWORD_RESET_TIMEOUT``, and with the next sign-in or new password: it is
    signed over both, and nothing of it is stored.

    Raises:
        Inactive: The account is deactivated.
    """
    if not user.is_active:
        raise Inactive
    with transaction.atomic():
        audit.note(admin, Action.RESET_LINK_MADE, user.username)
    number = urlsafe_base64_encode(force_bytes(user.pk))
    token = default_token_generator.make_token(user)
    return reverse("accounts:reset", args=[number, token])


def _locked(user: User) -> User:
    """The row as it is now; of two who change admins at once, the second waits for the first."""
    admins = User.objects.filter(is_staff=True).order_by("pk")
    list(admins.select_for_update(no_key=True).values_list("pk"))
    return User.objects.select_related("viewer").get(pk=user.pk)


def _check_admin_left() -> None:
    if not User.objects.filter(is_staff=True, is_active=True).exists():
        raise LastAdmin
