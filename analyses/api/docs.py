"""What describes the API: the schema as a file, and pages for people."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from analyses.api.problems import KINDS


class SchemaFile(APIView):
    """The schema as it is checked in; to generate it takes a second, and it would be the same."""

    schema = None

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        """Whatever is accepted, it is YAML; problems are JSON as ever."""
        return super().perform_content_negotiation(request, force=True)

    def get(self, _request: Request) -> HttpResponse:
        """All of it."""
        return HttpResponse(_checked_in(), content_type="application/yaml")


@cache
def _checked_in() -> bytes:
    return (Path(settings.BASE_DIR) / "docs" / "openapi.yaml").read_bytes()


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Every address of the API, to read and to try."""
    return render(request, "api/docs.html", {"nav": "api"})


@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    """The kinds of problems; the ``type`` of each leads here."""
    return render(request, "api/problems.html", {"kinds": KINDS.values(), "nav": "api"})
