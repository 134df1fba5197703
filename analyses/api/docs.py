"""The pages that describe the API to people."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from analyses.api.problems import KINDS


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Every address of the API, to read and to try."""
    return render(request, "api/docs.html", {"nav": "api"})


@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    """The kinds of problems; the ``type`` of each leads here."""
    return render(request, "api/problems.html", {"kinds": KINDS.values(), "nav": "api"})
