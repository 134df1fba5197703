"""What every page knows."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def demo(_request: HttpRequest) -> dict[str, bool]:
    """Whether the site shows a demo, which each page then says."""
    return {"is_demo": settings.IS_DEMO}
