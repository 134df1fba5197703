"""Every write to an account: roles, leaving and coming back, factors. Each is noted."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Lower

from memorymark_site.accounts import audit, sessions
from memorymark_site.accounts.factors.of_member import SECOND, factors_of
from memorymark_site.accounts.models import Action, ApiToken, Viewer
from memorymark_site.accounts.roles import Role, role_of


class LastAdmin(Exception):
    """The lab would be left without an admin who can sign in."""


class Inactive(Exception):
    """The account is deactivated; it is reactivated first."""


def everybody() -> QuerySet[User]:
    """All accounts with their role at hand, and ``has_factor``: the active ones first, A to Z."""
    factors = Authenticator.objects.filter(user=OuterRef("pk"), type__in=SECOND)
    accounts = User.objects.select_related("viewer").annotate(has_factor=Exists(factors))
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


def remove_factors(actor: User | None, user: User) -> bool:
    """Take somebody's second factors and recovery codes away, as after the loss of a phone.

    Args:
        actor: Who does it; ``None`` for whoever runs the machine.
        user: Whose they are.

    Returns:
        Whether that changed anything.
    """
    with transaction.atomic():
        factors = factors_of(user)
        deleted, _ = Authenticator.objects.filter(user=user).delete()
        if deleted:
            audit.note(actor, Action.FACTOR_REMOVED, user.username, before=factors)
    return bool(deleted)


def _locked(user: User) -> User:
    """The row as it is now; of two who change admins at once, the second waits for the first."""
    admins = User.objects.filter(is_staff=True).order_by("pk")
    list(admins.select_for_update(no_key=True).values_list("pk"))
    return User.objects.select_related("viewer").get(pk=user.pk)


def _check_admin_left() -> None:
    if not User.objects.filter(is_staff=True, is_active=True).exists():
        raise LastAdmin
