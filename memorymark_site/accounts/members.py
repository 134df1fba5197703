"""Every write to an account: role, deactivation, factors. Each is audited."""

from __future__ import annotations

import unicodedata

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Lower

from memorymark_site.accounts import audit, sessions
from memorymark_site.accounts.models import Action, ApiToken, Viewer
from memorymark_site.accounts.roles import Role, role_of
from memorymark_site.accounts.second_factors import SECOND, factors_of


class LastAdmin(Exception):
    """No admin who can sign in would be left."""


class Inactive(Exception):
    """The account is deactivated and has to be reactivated first."""


def all_members(search: str = "") -> QuerySet[User]:
    """Accounts with their role and ``has_factor``: active ones first, then A to Z.

    Args:
        search: Part of a name or an e-mail address; empty for all.
    """
    factors = Authenticator.objects.filter(user=OuterRef("pk"), type__in=SECOND)
    accounts = User.objects.select_related("viewer").annotate(has_factor=Exists(factors))
    if search:
        named = Q(username__icontains=search) | Q(email__icontains=search)
        accounts = accounts.filter(named)
    return accounts.order_by("-is_active", Lower("username"))


def give_role(user: User, role: Role) -> None:
    """Store a role, in Django's flags and in ours; the caller audits why."""
    is_admin = role is Role.ADMIN
    User.objects.filter(pk=user.pk).update(is_staff=is_admin, is_superuser=is_admin)
    if role is Role.VIEWER:
        Viewer.objects.get_or_create(user=user)
    else:
        Viewer.objects.filter(user=user).delete()


def set_role(admin: User, user: User, role: Role) -> bool:
    """Change the role of an active account, from the next request on.

    Returns:
        Whether that changed anything.

    Raises:
        LastAdmin: If no admin would be left.
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


def deactivate(admin: User, user: User, handed_over: str = "") -> bool:
    """Lock a member out at once; their analyses are kept.

    API tokens are deleted and sessions ended, so that coming back means signing in again.

    Args:
        admin: Who does it.
        user: The member.
        handed_over: What went to another member, for the audit.

    Returns:
        Whether that changed anything.

    Raises:
        LastAdmin: If no admin would be left.
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
        lost = f"{tokens} API tokens deleted" if tokens else ""
        audit.note(
            admin, Action.MEMBER_DEACTIVATED, stored.username, before=before,
            after="; ".join(filter(None, (lost, handed_over))),
        )  # fmt: skip
    return True


def reactivate(admin: User, user: User) -> bool:
    """Let a member in again, with their previous role.

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
    """Remove a member's second factors and recovery codes, for instance after a phone was lost.

    Args:
        actor: The user who does it; ``None`` for a command on the server.
        user: The member.

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
    """The current row; of two who change admins at once, the second waits for the first."""
    admins = User.objects.filter(is_staff=True).order_by("pk")
    list(admins.select_for_update(no_key=True).values_list("pk"))
    return User.objects.select_related("viewer").get(pk=user.pk)


def _check_admin_left() -> None:
    if not User.objects.filter(is_staff=True, is_active=True).exists():
        raise LastAdmin


_MAX_LENGTH = 150
"""Characters of a user name, as Django has it."""

LIKE_ANOTHER = "A member has this name or one that looks like it. Choose another."


def folded(name: str) -> str:
    """A name without differences that only spelling makes: ``Strauß`` becomes ``strauss``.

    Longer input than any name is cut first: anyone can send it, and normalising the marks of
    100,000 characters takes many seconds in which nothing else in the process runs.
    """
    return unicodedata.normalize("NFKC", name.strip()[:_MAX_LENGTH]).strip().casefold()


def name_is_taken(name: str) -> bool:
    """Whether an account has this name, or one that folds to the same.

    Wrong passwords are counted by folded name and forgotten at a right one: the owner of a second
    account with the same folded name could guess the first one's password forever.
    """
    names = User.objects.values_list("username", flat=True)
    return folded(name) in {folded(taken) for taken in names}
