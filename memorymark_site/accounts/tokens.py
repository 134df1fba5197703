"""API tokens: made, used, revoked. A token itself is known only while it is being made."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action, ApiToken, Scope

NOTE_USE_EVERY = timedelta(minutes=1)
"""A busy script would write a row with each request otherwise."""

MOST_TOKENS = 50
"""Of one member."""


class TooManyTokens(Exception):
    """The member has as many tokens as one may have."""


def make(
    member: User, name: str, scope: Scope, days: int | None, *, actor: User | None = None
) -> tuple[ApiToken, str]:
    """Make a token.

    Args:
        member: Whose it is.
        name: What it is for.
        scope: What it may do.
        days: How long it works; for ever without.
        actor: Who makes it; nobody but whoever runs the machine, if left out.

    Returns:
        What is stored of it, and the token, which nobody can ask for again.

    Raises:
        TooManyTokens: See :data:`MOST_TOKENS`.
    """
    if tokens_of(member).count() >= MOST_TOKENS:
        raise TooManyTokens
    expiry = None if days is None else timedelta(days=days)
    ends = "for ever" if days is None else f"for {days} days"
    with transaction.atomic():
        stored, token = ApiToken.objects.create(user=member, expiry=expiry, name=name, scope=scope)
        audit.note(actor, Action.TOKEN_MADE, _called(stored), after=f"to {scope}, {ends}")
    return stored, token


def tokens_of(member: User) -> QuerySet[ApiToken]:
    """A member's tokens, newest first; those that have ended stay until one of them is used."""
    tokens: QuerySet[ApiToken] = ApiToken.objects.filter(user=member).order_by("-created")
    return tokens


def revoke(member: User, token_key: str) -> bool:
    """End a token of one's own, from the next request on.

    Returns:
        Whether there was one that begins so.
    """
    with transaction.atomic():
        token = tokens_of(member).filter(token_key=token_key).first()
        if token is not None:
            note_revoked(member, token)
            token.delete()
    return token is not None


def note_revoked(actor: User, token: ApiToken) -> None:
    """Note that a token ends, in the transaction in which it does."""
    audit.note(actor, Action.TOKEN_REVOKED, _called(token), before=f"to {token.scope}")


def _called(token: ApiToken) -> str:
    """How the audit log calls it."""
    return f"token {token.token_key}… ({token.name or 'no name'}) of {token.user.get_username()}"


def note_use(token: ApiToken) -> None:
    """Note that a token is used; of several requests at once, one writes."""
    now = timezone.now()
    if token.last_used_at is not None and token.last_used_at > now - NOTE_USE_EVERY:
        return
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - NOTE_USE_EVERY)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
