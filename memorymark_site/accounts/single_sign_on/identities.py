"""Whom an identity of the lab's OpenID Connect provider lets in, and as whom.

The provider says who somebody is; which account that is decides this. An identity is its issuer and
its subject, which never change. An e-mail address only ever leads to an account once, at the first
sign-in, and only where both sides are sure of it: the provider says that it is verified, and an
admin has invited the account at this very address. What a member has typed for an address proves
nothing: who could be found by it could take over the account of somebody else, or lead somebody
else into their own. Admins are never found by an address: what the provider's operator can change
there would make them admin of the lab. They link their identity on the page of their account. Who
holds the link of an invitation needs no address: the link says as what they join.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from memorymark_site.accounts import audit, invitations, members, setup_link
from memorymark_site.accounts.models import Action, Invitation
from memorymark_site.accounts.names import is_taken
from memorymark_site.accounts.roles import Role
from memorymark_site.oidc_settings import OidcSettings

_LONGEST_NAME = 30
_FORBIDDEN = re.compile(r"[^\w.+-]+")
"""In a user name; Django's rule but for the ``@``: an address is not to be read everywhere."""

_DEACTIVATED = "Your account is deactivated. Ask an admin of your lab."
_UNKNOWN = (
    "You have no account here. Ask an admin of your lab for an invitation; with an account, link "
    "this sign-in on the page Account."
)
_NOT_SET_UP = "This site is not set up yet. Its first admin comes by the link in the terminal."
_NOT_LINKED = (
    "There is an account with your address, but it is not linked to this sign-in. Sign in to it as "
    "before, and link it on the page Account."
)


ENDED = "The invitation has been used or revoked, or its time is over. Ask an admin for a new one."


class Refused(Exception):
    """Nobody is let in by this identity; the message says why, for who has shown to have it."""


class AlreadyLinked(Exception):
    """The identity belongs to another account."""


@dataclass(frozen=True)
class Identity:
    """Who somebody is, by what the provider has signed.

    Attributes:
        issuer: The provider.
        subject: Whom it means; never given to somebody else.
        email: An address that the provider says is verified; else empty.
        name: What they would like to be called; empty where it says nothing.
    """

    issuer: str
    subject: str
    email: str
    name: str


def provider() -> OidcSettings | None:
    """The lab's provider, if it has one."""
    found: OidcSettings | None = settings.OIDC
    return found


def linked(user: User) -> SocialAccount | None:
    """The identity that an account is linked to, at the present provider."""
    oidc = provider()
    found = SocialAccount.objects.filter(user=user, provider=oidc.issuer) if oidc else []
    return next(iter(found), None)


def member_for(identity: Identity) -> User:
    """The account that an identity signs in to: linked, found by its address, or new.

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
    """The account that an identity is linked to; else a new one, by an invitation.

    Here the invitation's key says who may come in, and as what; the identity is how they do.

    Args:
        digest: What is stored of the invitation's key.
        identity: Who has come with it.

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
    """Let an identity sign in to an account from now on.

    Raises:
        AlreadyLinked: It signs in to another one, or the account has another identity.
    """
    if SocialAccount.objects.filter(provider=identity.issuer, user=user).exists():
        raise AlreadyLinked
    try:
        with transaction.atomic():
            _store(user, identity)
            audit.note(
                user, Action.SIGN_ON_LINKED, user.username, before=how, after=_shown(identity)
            )
    except IntegrityError as error:  # an identity is there once
        raise AlreadyLinked from error


def unlink(user: User) -> bool:
    """Let the identities of an account sign in no more.

    Returns:
        Whether that changed anything.
    """
    with transaction.atomic():
        deleted, _ = SocialAccount.objects.filter(user=user).delete()
        if deleted:
            audit.note(user, Action.SIGN_ON_UNLINKED, user.username)
    return bool(deleted)


def _was_invited_there(user: User) -> bool:
    """Whether an admin has invited this account at the address that it has."""
    invitation = Invitation.objects.filter(accepted_by=user).first()
    return invitation is not None and _is_same_address(invitation.email, user.email)


def _is_same_address(one: str, other: str) -> bool:
    """Whether two addresses are the same; beyond ASCII only where they are equal.

    To PostgreSQL a dotless i (U+0131) is an ``I`` in small; who has an address with it is somebody
    else.
    """
    if one.isascii() and other.isascii():
        return one.lower() == other.lower()
    return one == other


def _new_member(identity: Identity) -> User:
    oidc = provider()
    if oidc is None or oidc.new == "nobody":
        raise Refused(_UNKNOWN)
    if setup_link.is_open():  # the link of the first admin ends with the first account
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
        raise Refused("That was done twice at once. Try again.") from error
    return user


def _store(user: User, identity: Identity) -> None:
    SocialAccount.objects.create(
        user=user, provider=identity.issuer, uid=identity.subject, extra_data={}
    )


def _shown(identity: Identity) -> str:
    return f"{identity.email or identity.subject} of {identity.issuer}"


def _free_name(identity: Identity) -> str:
    """A user name that nobody has: the wished one, or with a number."""
    wished = identity.name.partition("@")[0] or identity.email.partition("@")[0]
    start = _FORBIDDEN.sub("-", wished).strip("-.")[:_LONGEST_NAME] or "member"
    number = 1
    name = start
    while is_taken(name):
        number += 1
        name = f"{start}-{number}"
    return name
