"""Context processors: what every template can use."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from engine import __version__
from memorymark_site.accounts.roles import Role, has_role


def demo(_request: HttpRequest) -> dict[str, bool]:
    """Whether this is a demo, which each page then shows."""
    return {"is_demo": settings.IS_DEMO}


def release(_request: HttpRequest) -> dict[str, str]:
    """The release, which each page shows at its foot."""
    return {"release": __version__}


def role(request: HttpRequest) -> dict[str, object]:
    """``is_admin`` and ``may_work``, evaluated only if a template uses them."""
    return {
        "is_admin": SimpleLazyObject(lambda: has_role(request.user, Role.ADMIN)),
        "may_work": SimpleLazyObject(lambda: has_role(request.user, Role.MEMBER)),
    }
