"""The ways into a lab: invitations, and the one-time set-up link of its first admin.

The set-up link is printed in the terminal of the first start. Anyone who can read that owns the
machine, so it is proof enough. It works only while there is no member.
"""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from memorymark_site.accounts import audit, members
from memorymark_site.accounts.links import digest_of, new_key
from memorymark_site.accounts.models import Action, Invitation, SetupLink
from memorymark_site.accounts.roles import Role

WORKS_FOR = timedelta(days=7)

_WORKS = Q(expires_at__gt=Now(), created_by__is_active=True, created_by__is_staff=True)
"""An open invitation works while its creator is an admin: a former one could come back by it."""


class InvitationEnded(Exception):
    """It was accepted, revoked or renewed, or has expired."""


def open_invitations() -> QuerySet[Invitation]:
    """The invitations not accepted or revoked, including expired ones."""
    waiting = Invitation.objects.filter(accepted_at=None, revoked_at=None)
    return waiting.select_related("created_by")


def listed() -> QuerySet[Invitation]:
    """The same, annotated with ``works``: whether the link lets someone in now."""
    return open_invitations().annotate(works=_WORKS)


def invite(admin: User, role: Role, email: str = "") -> tuple[Invitation, str]:
    """Create an invitation.

    Args:
        admin: The admin who invites.
        role: The role of the new account.
        email: Address the invitation is sent to, if any; becomes the account's address.

    Returns:
        The invitation and the key of its link, of which only a digest is stored.
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
    """Replace the link of an open invitation, in this admin's name and for the full time.

    Returns:
        The key of the new link.

    Raises:
        InvitationEnded: If it is no longer open.
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
    """Revoke an invitation; returns whether it was still open."""
    with transaction.atomic():
        changed = open_invitations().filter(pk=invitation.pk).update(revoked_at=Now())
        if changed:
            audit.note(admin, Action.INVITATION_REVOKED, name_of(invitation))
    return bool(changed)


def find(key: str) -> Invitation | None:
    """The working invitation with this key, if any."""
    return find_by_digest(digest_of(key))


def find_by_digest(digest: str) -> Invitation | None:
    """The same by the stored digest of the key."""
    return open_invitations().filter(_WORKS, digest=digest).first()


def accept(invitation: Invitation, name: str, email: str, password: str | None) -> User:
    """Create the account and use the invitation up, in one transaction.

    Args:
        invitation: The invitation from :func:`find`.
        name: The user name.
        email: The address, if any.
        password: ``None`` if the account signs in by single sign-on.

    Raises:
        InvitationEnded: If it is no longer open: of two who accept at once, one succeeds.
    """
    # Its own columns only: after waiting for a lock, PostgreSQL does not re-read other tables.
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
    return f"{invitation.email or 'invitation'} (no. {invitation.pk})"


class SetupClosed(Exception):
    """There is an admin already."""


def new_setup_link() -> str | None:
    """Replace the set-up link; returns its token, or ``None`` if the lab has a member."""
    with transaction.atomic():
        SetupLink.objects.all().delete()
        if User.objects.exists():
            return None
        token = secrets.token_urlsafe(24)
        SetupLink.objects.create(digest=digest_of(token))
    return token


def setup_is_open() -> bool:
    """Whether the lab has no member yet."""
    return not User.objects.exists()


def find_setup_link(token: str) -> SetupLink | None:
    """The working link with this token, if any."""
    if not setup_is_open():
        return None
    given = digest_of(token)
    links = SetupLink.objects.all()
    return next((link for link in links if constant_time_compare(link.digest, given)), None)


def use_setup_link(link: SetupLink, username: str, email: str, password: str) -> User:
    """Create the first admin and use the link up, in one transaction.

    Raises:
        SetupClosed: If the link is gone: of two who submit at once, only one can delete it.
    """
    with transaction.atomic():
        deleted, _ = SetupLink.objects.filter(pk=link.pk).delete()
        if not deleted or not setup_is_open():
            raise SetupClosed
        user = User.objects.create_superuser(username, email, password)
        audit.note(user, Action.MEMBER_JOINED, username, before="set-up link", after="admin")
        return user
