"""What every page knows."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from memorymark_site.accounts.roles import Role, has_role


def demo(_request: HttpRequest) -> dict[str, bool]:
    """Whether the site shows a demo, which each page then says."""
    return {"is_demo": settings.IS_DEMO}


def role(request: HttpRequest) -> dict[str, object]:
    """What to offer to who looks: ``is_admin`` and ``may_work``, asked where a page needs it."""
    return {
        "is_admin": SimpleLazyObject(lambda: has_role(request.user, Role.ADMIN)),
        "may_work": SimpleLazyObject(lambda: has_role(request.user, Role.MEMBER)),
    }
