"""What the API asks of who calls it, besides that they have signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from memorymark_site.accounts.factors.rule import WORDS, lacks_factor
from memorymark_site.accounts.models import ApiToken, Scope
from memorymark_site.accounts.roles import has_role, needed, refusal

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which loads this module, as the settings name it


class RoleAllows(BasePermission):
    """The role that a view needs: see :mod:`memorymark_site.accounts.roles`."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the member has it; the message says what is missing."""
        role = needed(view, request.method)
        self.message = refusal(role)
        return has_role(request.user, role)


class FactorAsRuled(BasePermission):
    """Of a session, what the lab's rule says; see :mod:`.factors.rule`."""

    message = WORDS

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether there is a token, or no factor is lacking."""
        return isinstance(request.auth, ApiToken) or not lacks_factor(request.user)


class WithinScope(BasePermission):
    """A token to read may read, and ask what changes nothing: a view says so by ``only_asks``."""

    message = (
        "This token may only read. Make one that may write, on the page API tokens of the site."
    )

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether this request is within the token's scope; a session has none."""
        token = request.auth
        if not isinstance(token, ApiToken) or token.scope == Scope.WRITE:
            return True
        return request.method in SAFE_METHODS or bool(getattr(view, "only_asks", False))
