"""What a script may do with the token that it signs in with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from memorymark_site.accounts.models import ApiToken, Scope

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which loads this module, as the settings name it


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
