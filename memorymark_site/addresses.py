"""Whole addresses of pages, for links that are passed on."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def passed_on(request: HttpRequest, path: str) -> str:
    """Where others find a page: at ``MEMORYMARK_URL``, or else where the site was opened.

    Who makes a link may have opened the site by a name that is theirs alone, such as ``localhost``
    through a tunnel, and a proxy may keep to itself by which name or scheme.
    """
    return f"{settings.GIVEN_URL}{path}" if settings.GIVEN_URL else request.build_absolute_uri(path)
