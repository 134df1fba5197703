"""Invitations: how somebody becomes a member. There is no other way to sign up."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from memorymark_site.accounts import audit, members
from memorymark_site.accounts.keys import digest_of, new_key
from memorymark_site.accounts.models import Action, Invitation
from memorymark_site.accounts.roles import Role

WORKS_FOR = timedelta(days=7)

_WORKS = Q(expires_at__gt=Now(), created_by__is_active=True, created_by__is_staff=True)
"""Of an open invitation. Whoever is admin no more knows its key, and could come back by it."""


class InvitationEnded(Exception):
    """It was accepted or revoked, or made anew, or its time is over."""


def open_invitations() -> QuerySet[Invitation]:
    """Those that nobody has accepted or revoked; ones whose time is over among them."""
    waiting = Invitation.objects.filter(accepted_at=None, revoked_at=None)
    return waiting.select_related("created_by")


def listed() -> QuerySet[Invitation]:
    """The same to be looked at, with ``works``: whether its link lets somebody in now."""
    return open_invitations().annotate(works=_WORKS)


def invite(admin: User, role: Role, email: str = "") -> tuple[Invitation, str]:
    """Invite somebody.

    Args:
        admin: Who invites.
        role: What the new account may do.
        email: Where the invitation is sent to, if anywhere; the account gets it as its own.

    Returns:
        The invitation and the key of its link, which is known here and now only.
    """
    key, digest = new_key()
    with transaction.atomic():
        invitation = Invitation.objects.create(
            digest=digest,
            email=email,
            role=role,
            created_by=admin,
            expires_at=timezone.now() + WORKS_FOR,
        )
        audit.note(admin, Action.MEMBER_INVITED, name_of(invitation), after=role)
    return invitation, key


def renew(admin: User, invitation: Invitation) -> str:
    """Give an open invitation a new link and all its time, in this admin's name; the old one ends.

    Returns:
        The key of the new link.

    Raises:
        InvitationEnded: If it is not open any more.
    """
    key, digest = new_key()
    with transaction.atomic():
        changed = (
            open_invitations()
            .filter(pk=invitation.pk)
            .update(digest=digest, expires_at=timezone.now() + WORKS_FOR, created_by=admin)
        )
        if not changed:
            raise InvitationEnded
        audit.note(admin, Action.INVITATION_RENEWED, name_of(invitation))
    return key


def revoke(admin: User, invitation: Invitation) -> bool:
    """End an invitation.

    Returns:
        Whether that changed anything.
    """
    with transaction.atomic():
        changed = open_invitations().filter(pk=invitation.pk).update(revoked_at=Now())
        if changed:
            audit.note(admin, Action.INVITATION_REVOKED, name_of(invitation))
    return bool(changed)


def find(key: str) -> Invitation | None:
    """The invitation that this key accepts; ``None`` for whatever reason."""
    return find_by_digest(digest_of(key))


def find_by_digest(digest: str) -> Invitation | None:
    """The same by what is stored of the key."""
    return open_invitations().filter(_WORKS, digest=digest).first()


def accept(invitation: Invitation, name: str, email: str, password: str | None) -> User:
    """Make the account; the invitation is used up in the same transaction.

    Args:
        invitation: What :func:`find` has found.
        name: What the account is called.
        email: Its address, if any.
        password: What it signs in with; ``None`` where that is single sign-on.

    Raises:
        InvitationEnded: If it is not open any more: of two who accept at once, one can.
    """
    # By its own columns: those of another table PostgreSQL does not look at anew after waiting.
    good = open_invitations().filter(
        pk=invitation.pk, digest=invitation.digest, expires_at__gt=Now()
    )
    with transaction.atomic():
        if not good.update(accepted_at=Now()):
            raise InvitationEnded
        user = User.objects.create_user(name, email, password)
        members.give_role(user, Role(invitation.role))
        Invitation.objects.filter(pk=invitation.pk).update(accepted_by=user)
        audit.note(
            user, Action.MEMBER_JOINED, name, before=name_of(invitation), after=invitation.role
        )
    return user


def name_of(invitation: Invitation) -> str:
    """How the audit log calls it."""
    return f"{invitation.email or 'invitation'} (no. {invitation.pk})"
