"""HTML of pages, as a browser gets it."""

from __future__ import annotations

from typing import Any

from django.test import Client
from django.urls import reverse

from analyses.models import Analysis

HTMX = {"HX-Request": "true"}
ADVICE = 'id="ladder"'
"""In the HTML of the section with advice."""


def html_of(page: Client, name: str, *args: Any, **headers: Any) -> str:
    """A page of the app by the name of its address."""
    response = page.get(reverse(f"analyses:{name}", args=args), **headers)
    assert response.status_code == 200
    return response.content.decode()


def history_of(page: Client, /, **query: Any) -> str:
    """The history with a query."""
    response = page.get(reverse("analyses:list"), query)
    assert response.status_code == 200
    return response.content.decode()


def advice_url(analysis: Analysis) -> str:
    """The address of the section with advice."""
    return f"/{analysis.pk}/advice/"


def advice_section(page: Client, analysis: Analysis, **given: str) -> str:
    """The section with advice alone."""
    html = page.get(advice_url(analysis), given, headers=HTMX).content.decode()
    assert ADVICE in html
    assert "<html" not in html
    return html
