"""API tokens: created, used, revoked, and what the API requires of its callers.

Only a digest of a token is stored, so it is shown once, when it is created.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from knox.auth import TokenAuthentication as KnoxTokenAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action, ApiToken, Scope
from memorymark_site.accounts.roles import has_role, needed, refusal
from memorymark_site.accounts.second_factors import FACTOR_MISSING, lacks_factor

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which loads this module, as the settings name it


NOTE_USE_EVERY = timedelta(minutes=1)
"""Otherwise each request of a busy script would write to the row."""

MAX_TOKENS = 50
"""Per member."""


class TooManyTokens(Exception):
    """The member has :data:`MAX_TOKENS` tokens."""


def create(
    member: User, name: str, scope: Scope, days: int | None, *, actor: User | None = None
) -> tuple[ApiToken, str]:
    """Create a token.

    Args:
        member: The owner.
        name: Its purpose.
        scope: Its rights.
        days: Days until it expires; never if ``None``.
        actor: The user who creates it; ``None`` for a command on the server.

    Returns:
        The stored row, and the token itself.

    Raises:
        TooManyTokens: See :data:`MAX_TOKENS`.
    """
    if tokens_of(member).count() >= MAX_TOKENS:
        raise TooManyTokens
    expiry = None if days is None else timedelta(days=days)
    lasting = "never expires" if days is None else f"for {days} days"
    with transaction.atomic():
        stored, token = ApiToken.objects.create(user=member, expiry=expiry, name=name, scope=scope)
        audit.note(actor, Action.TOKEN_MADE, _called(stored), after=f"{scope}, {lasting}")
    return stored, token


def tokens_of(member: User) -> QuerySet[ApiToken]:
    """A member's tokens, newest first; expired ones stay until one of them is used."""
    tokens: QuerySet[ApiToken] = ApiToken.objects.filter(user=member).order_by("-created")
    return tokens


def revoke(member: User, token_key: str) -> bool:
    """Delete one of the member's own tokens; returns whether it existed."""
    with transaction.atomic():
        token = tokens_of(member).filter(token_key=token_key).first()
        if token is not None:
            note_revoked(member, token)
            token.delete()
    return token is not None


def note_revoked(actor: User, token: ApiToken) -> None:
    """Audit the end of a token, in the transaction that deletes it."""
    audit.note(actor, Action.TOKEN_REVOKED, _called(token), before=token.scope)


def _called(token: ApiToken) -> str:
    return f"token {token.token_key}… ({token.name or 'no name'}) of {token.user.get_username()}"


def note_use(token: ApiToken) -> None:
    """Note the time of use; of several requests at once, only one writes."""
    now = timezone.now()
    if token.last_used_at is not None and token.last_used_at > now - NOTE_USE_EVERY:
        return
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - NOTE_USE_EVERY)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


class TokenAuthentication(KnoxTokenAuthentication):  # type: ignore[misc]  # knox has no types
    """``Authorization: Token mm_…``; bytes that no token has are refused undecoded."""

    def authenticate_credentials(self, token: bytes) -> tuple[Any, Any]:
        """The member and the token.

        Raises:
            AuthenticationFailed: If there is no such token.
        """
        if not (token.isascii() and token.replace(b"_", b"").isalnum()):
            raise AuthenticationFailed("Invalid token.")
        found: tuple[Any, Any] = super().authenticate_credentials(token)
        note_use(found[1])
        return found


class RoleAllows(BasePermission):
    """The role that a view needs: see :mod:`memorymark_site.accounts.roles`."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the member has it; the message says what is missing."""
        role = needed(view, request.method)
        self.message = refusal(role)
        return has_role(request.user, role)


class FactorAsRuled(BasePermission):
    """The lab's rule about second factors, for sessions; see :mod:`.factors.rule`."""

    message = FACTOR_MISSING

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether there is a token, or a second factor where the lab requires one."""
        return isinstance(request.auth, ApiToken) or not lacks_factor(request.user)


class WithinScope(BasePermission):
    """A read-only token may read, and use views that change nothing (``only_asks``)."""

    message = "This token is read-only. Create one with write access on the API tokens page."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the request is within the token's scope; sessions have none."""
        token = request.auth
        if not isinstance(token, ApiToken) or token.scope == Scope.WRITE:
            return True
        return request.method in SAFE_METHODS or bool(getattr(view, "only_asks", False))
