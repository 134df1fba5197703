"""The account that an identity of the lab's OpenID Connect provider signs in to.

An identity is an issuer and a subject, which never change. An e-mail address leads to an account
only once, at the first sign-in, and only if both sides vouch for it: the provider says that it is
verified, and an admin invited the account at this very address. An address that a member typed
proves nothing: matching by it, members could take over each other's accounts. Admins are never
matched by address, or the provider's operator could become admin of the lab; they link their
identity on their account page. With the link of an invitation no address is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from memorymark_site.accounts import audit, invitations, members
from memorymark_site.accounts import invitations as setup_link
from memorymark_site.accounts.members import name_is_taken
from memorymark_site.accounts.models import Action, Invitation
from memorymark_site.accounts.roles import Role
from memorymark_site.environment import OidcSettings

_MAX_NAME_LENGTH = 30
_FORBIDDEN = re.compile(r"[^\w.+-]+")
"""Characters that a user name may not have: Django's rule, and no ``@``, so that nobody's address
shows everywhere."""

_DEACTIVATED = "Your account is deactivated. Ask a lab admin."
_UNKNOWN = (
    "You have no account here. Ask a lab admin for an invitation. If you already have an account, "
    "link this sign-in on your account page."
)
_NOT_SET_UP = "This site is not set up yet. The first admin uses the link printed in the terminal."
_NOT_LINKED = (
    "An account uses your address but is not linked to this sign-in. Sign in to it as before, and "
    "link it on your account page."
)


ENDED = "This invitation has expired, was revoked or was already used. Ask an admin for a new one."


class Refused(Exception):
    """This identity may not sign in; the message gives its owner the reason."""


class AlreadyLinked(Exception):
    """The identity belongs to another account."""


@dataclass(frozen=True)
class Identity:
    """A person, as signed by the provider.

    Attributes:
        issuer: The provider.
        subject: The person there; never reassigned.
        email: An address that the provider calls verified, or empty.
        name: The preferred user name, or empty.
    """

    issuer: str
    subject: str
    email: str
    name: str


def provider() -> OidcSettings | None:
    found: OidcSettings | None = settings.OIDC
    return found


def linked(user: User) -> SocialAccount | None:
    """The identity that an account is linked to, at the current provider."""
    oidc = provider()
    found = SocialAccount.objects.filter(user=user, provider=oidc.issuer) if oidc else []
    return next(iter(found), None)


def member_for(identity: Identity) -> User:
    """The account that an identity signs in to: linked, matched by address, or new.

    Raises:
        Refused: There is none.
    """
    known = SocialAccount.objects.filter(provider=identity.issuer, uid=identity.subject)
    if account := known.select_related("user").first():
        user: User = account.user
        if not user.is_active:
            raise Refused(_DEACTIVATED)
        return user
    if not identity.email:
        raise Refused(_UNKNOWN)
    alike = User.objects.filter(email__iexact=identity.email)
    namesakes = [user for user in alike if _is_same_address(user.email, identity.email)]
    if not namesakes:
        return _new_member(identity)
    invited = [user for user in namesakes if _was_invited_there(user)]
    if not any(user.is_active for user in invited or namesakes):
        raise Refused(_DEACTIVATED)
    if len(invited) != 1 or invited[0].is_staff:
        raise Refused(_NOT_LINKED)
    try:
        link(invited[0], identity, how="by the address of its invitation")
    except AlreadyLinked as error:
        raise Refused(_NOT_LINKED) from error
    return invited[0]


def join(digest: str, identity: Identity) -> User:
    """The account that an identity is linked to, or a new one by an invitation.

    Args:
        digest: Digest of the invitation's key.
        identity: The person who opened it.

    Raises:
        Refused: The invitation has ended, or the account is deactivated.
    """
    if SocialAccount.objects.filter(provider=identity.issuer, uid=identity.subject).exists():
        return member_for(identity)
    invitation = invitations.find_by_digest(digest)
    if invitation is None:
        raise Refused(ENDED)
    try:
        with transaction.atomic():
            user = invitations.accept(invitation, _free_name(identity), identity.email, None)
            link(user, identity, how="by invitation")
    except (AlreadyLinked, IntegrityError, invitations.InvitationEnded) as error:
        raise Refused(ENDED) from error
    return user


def link(user: User, identity: Identity, *, how: str) -> None:
    """Link an identity to an account.

    Raises:
        AlreadyLinked: It is linked to another account, or the account to another identity.
    """
    if SocialAccount.objects.filter(provider=identity.issuer, user=user).exists():
        raise AlreadyLinked
    try:
        with transaction.atomic():
            _store(user, identity)
            audit.note(
                user, Action.SIGN_ON_LINKED, user.username, before=how, after=_shown(identity)
            )
    except IntegrityError as error:  # each identity exists once
        raise AlreadyLinked from error


def unlink(user: User) -> bool:
    """Unlink the identities of an account; returns whether there were any."""
    with transaction.atomic():
        deleted, _ = SocialAccount.objects.filter(user=user).delete()
        if deleted:
            audit.note(user, Action.SIGN_ON_UNLINKED, user.username)
    return bool(deleted)


def _was_invited_there(user: User) -> bool:
    """Whether an admin invited this account at its current address."""
    invitation = Invitation.objects.filter(accepted_by=user).first()
    return invitation is not None and _is_same_address(invitation.email, user.email)


def _is_same_address(one: str, other: str) -> bool:
    """Whether two addresses are the same: beyond ASCII, only if they are equal.

    PostgreSQL takes a dotless i (U+0131) for a lower-case ``I``, but such an address is another
    person's.
    """
    if one.isascii() and other.isascii():
        return one.lower() == other.lower()
    return one == other


def _new_member(identity: Identity) -> User:
    oidc = provider()
    if oidc is None or oidc.new == "nobody":
        raise Refused(_UNKNOWN)
    if setup_link.setup_is_open():  # the first account would end the first admin's link
        raise Refused(_NOT_SET_UP)
    role = Role(oidc.new)
    try:
        with transaction.atomic():
            user = User.objects.create_user(_free_name(identity), identity.email)  # no password
            members.give_role(user, role)
            _store(user, identity)
            audit.note(
                user, Action.MEMBER_JOINED, user.username, before=_shown(identity), after=role
            )
    except IntegrityError as error:  # the same identity, or the same name, at the same moment
        raise Refused("Two sign-ins collided. Try again.") from error
    return user


def _store(user: User, identity: Identity) -> None:
    SocialAccount.objects.create(
        user=user, provider=identity.issuer, uid=identity.subject, extra_data={}
    )


def _shown(identity: Identity) -> str:
    return f"{identity.email or identity.subject} of {identity.issuer}"


def _free_name(identity: Identity) -> str:
    """A free user name: the preferred one, or with a number."""
    wished = identity.name.partition("@")[0] or identity.email.partition("@")[0]
    start = _FORBIDDEN.sub("-", wished).strip("-.")[:_MAX_NAME_LENGTH] or "member"
    number = 1
    name = start
    while name_is_taken(name):
        number += 1
        name = f"{start}-{number}"
    return name
