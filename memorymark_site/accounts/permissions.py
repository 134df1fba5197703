"""What the API asks of who calls it, besides that they have signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

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
